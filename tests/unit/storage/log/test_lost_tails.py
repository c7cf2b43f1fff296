from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.testing.simulated.disk import GROWTH, MemoryDisk
from braidlog.testing.simulated.memory_files import MemoryFiles
from braidlog.wire.records.batch import iterate_headers
from support.log_kit import FailingDisk, Kit, crashed, read_all


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, segment_bytes=1000, index_interval_bytes=200)


@pytest.mark.parametrize(("field", "end"), [(0, None), (8, None), (16, None), (17, 5), (23, None), (63, 5)])
def test_the_end_of_a_loss_is_told_where_the_last_header_is_believable(kit: Kit, field: int, end: int | None) -> None:
    crashed(kit, 5)
    path = kit.name(0, ".log")
    data = bytearray(path.read_bytes())
    data[iterate_headers(bytes(data), 0, len(data))[4].position + field] ^= 0x40
    path.write_bytes(data)
    (lost,) = kit.open().recovery.lost
    assert (lost.first_offset, lost.end_offset) == (4, end)


def test_the_end_of_a_loss_is_unknown_where_the_headers_stop_making_sense(kit: Kit) -> None:
    crashed(kit, 5)
    path = kit.name(0, ".log")
    data = bytearray(path.read_bytes())
    # A little longer than it is: still within the file, but no header follows where it ends.
    data[iterate_headers(bytes(data), 0, len(data))[1].position + 11] ^= 0x10
    path.write_bytes(data)
    (lost,) = kit.open().recovery.lost
    assert (lost.first_offset, lost.end_offset) == (1, None)


def test_a_second_loss_at_the_same_offset_does_not_overwrite_the_first(kit: Kit) -> None:
    crashed(kit, 3)
    for number in range(2):
        with kit.name(0, ".log").open("ab") as file:
            file.write(b"junk%d" % number * 20)
        log = kit.open()
        assert log.log_end_offset == 3
        log.close(flush=False)
    tails = sorted(name for name in kit.names() if name.endswith(".tail"))
    assert tails == [f"lost-{3:020d}.1.tail", f"lost-{3:020d}.tail"]
    assert (kit.path / tails[1]).read_bytes() == b"junk0" * 20


def test_corrupt_bytes_that_cannot_be_saved_are_not_cut_off(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk)
    crashed(kit, 3)
    path = kit.name(0, ".log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    disk.room, disk.only = 10, ".tail"
    with pytest.raises(StorageFault, match=r"cannot be saved .*No space left.*make room"):
        kit.open()
    assert path.read_bytes() == bytes(data)
    assert not any(name.endswith(".tail") for name in kit.names())
    disk.room = None
    assert kit.open().recovery.lost[0].size == len(data)


def test_a_corrupt_tail_that_cannot_be_saved_for_want_of_room_is_no_broken_disk() -> None:
    disk = MemoryDisk(random.Random(1), ManualClock())
    files = MemoryFiles(disk)
    kit = Kit(Path("/data"), files)
    log = kit.open()
    kit.values(log, b"a")
    kit.values(log, b"b")
    path = log.segments[0].log_path
    size = files.size(path)
    files.open_append(path).truncate(size - 3)
    disk.fail(*GROWTH, code=errno.ENOSPC, lasting=True)
    with pytest.raises(StorageFault, match="make room") as refused:
        kit.open()
    assert is_disk_full(refused.value)
    disk.repair()
    assert len(read_all(kit.open())) == 1
