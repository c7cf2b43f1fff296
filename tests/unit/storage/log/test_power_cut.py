"""Logs on a disk that loses what was not synced: what was synced stays, over any number of cuts."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.errors import StorageFault
from braidlog.storage.dirs.directory_lock import NoLock
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME, read_topic_id, write_topic_id
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.testing.simulated.disk import DEFAULT_CAPACITY, MemoryDisk
from braidlog.testing.simulated.memory_files import MemoryFiles
from support.log_kit import Kit, read_all

TOPIC_ID = bytes(range(16))
SETTINGS = {"segment_bytes": 400, "index_interval_bytes": 0}


class Survivor:
    """A log that is written, synced, hit by full disks and power cuts; `synced` is what it must never lose."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk(self.random, ManualClock())
        self.files = MemoryFiles(self.disk)
        self.files.mkdir("/data")
        self.files.sync_dir("/")
        self.kit = Kit(Path("/data"), self.files, **SETTINGS)
        self.log: UnifiedLog = self.kit.open(clean=True)
        self.written: dict[int, bytes] = {}
        self.synced = 0
        self.names = self._names()

    def _names(self) -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            # Of many sizes, so that positions of one life are no batch boundaries of another.
            yield b"%d" % number + b"." * self.random.randrange(80)

    def write(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            values = [next(self.names) for _ in range(self.random.randint(1, 3))]
            with contextlib.suppress(StorageFault):
                info = self.kit.values(self.log, *values)
                self.written.update(enumerate(values, info.first_offset))

    def write_on_a_full_disk(self) -> None:
        self.disk.capacity = self.disk.used + self.random.randint(0, 300)
        self.write()
        self.disk.capacity = DEFAULT_CAPACITY

    def sync(self) -> None:
        self.log.sync_to(self.log.log_end_offset)
        self.synced = self.log.log_end_offset

    def look(self) -> None:
        """Readers that come from anywhere find their way through the indexes."""
        self.log.advance_high_watermark(self.log.log_end_offset)
        for _ in range(10):
            start = self.random.randint(0, self.log.log_end_offset)
            expected = [(offset, value) for offset, value in sorted(self.written.items()) if offset >= start]
            assert read_all(self.log, start, self.random.choice([100, 1000])) == expected, f"read from {start}"

    def cut_power(self) -> None:
        self.disk.cut_power()
        self.kit.handles = HandlePool(self.files, 64)
        # The checkpoint of the recovery point is as old as it happens to be.
        recovery_point = self.random.choice([self.synced, self.random.randint(0, self.synced)])
        self.log = self.kit.open(recovery_point=recovery_point)
        self.log.advance_high_watermark(self.log.log_end_offset)
        found = dict(read_all(self.log))
        for offset, value in self.written.items():
            assert offset >= self.synced or found.get(offset) == value, f"offset {offset} of {self.synced} synced ones"
        for offset, found_value in found.items():
            assert found_value == self.written[offset], f"offset {offset}"
        # Of several unsynced segments any may have lost its tail: then there is a hole.
        self.written = {offset: value for offset, value in self.written.items() if offset in found}


@pytest.mark.parametrize("first_seed", range(0, 400, 50))
def test_what_was_synced_survives_any_number_of_power_cuts(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        life = Survivor(seed)
        steps = [life.write, life.write, life.sync, life.write_on_a_full_disk, life.look, life.cut_power]
        try:
            for _ in range(25):
                life.random.choice(steps)()
        except Exception as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem


@pytest.mark.parametrize("restarted", [False, True])
def test_records_that_survive_a_power_cut_tell_whose_they_are(restarted: bool) -> None:
    """A log without its topic id would be taken for that of the next topic of its name."""
    for seed in range(50):
        life = Survivor(seed)
        write_topic_id(life.files, life.log, TOPIC_ID)
        life.write()
        if restarted:
            # Killed, and started again: what was written is there, and is not synced.
            life.log.close(flush=False)
            life.log = life.kit.open()
            life.log.sync_along(FILE_NAME)
        life.sync()
        life.cut_power()
        assert read_topic_id(life.files, "/data", life.kit.directory) == TOPIC_ID, f"seed {seed}"


def test_the_mark_of_a_clean_stop_is_taken_once() -> None:
    for seed in range(50):
        disk = MemoryDisk(Random(seed), ManualClock())
        files = MemoryFiles(disk)
        files.mkdir("/data")
        files.sync_dir("/")
        directory = LogDirectory("/data", files, lambda path: NoLock())
        directory.mark_clean_shutdown(1)
        assert directory.take_clean_shutdown()
        disk.cut_power()
        assert not LogDirectory("/data", files, lambda path: NoLock()).take_clean_shutdown(), f"seed {seed}"


def test_an_index_from_an_earlier_life_is_built_again() -> None:
    """Indexes are synced later than what they index, if at all: a power cut can leave an older one."""
    life = Survivor(7)
    while len(life.log.segments) < 3:
        life.write()
    life.sync()
    first = life.log.segments[0]
    life.log.close(flush=False)
    path = first.offset_index.file.path
    # Well-formed, within the file, but no batch starts there.
    life.files.write_atomic(path, struct.pack(">ii", 1, first.size // 2 + 1))
    life.kit.handles = HandlePool(life.files, 64)
    life.log = life.kit.open(recovery_point=life.synced)
    assert path in life.log.recovery.rebuilt_indexes
    life.look()
