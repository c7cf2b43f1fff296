from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from braidlog.core.clock import ManualClock
from braidlog.storage.files import Files
from braidlog.testing.simulated.disk import READ, SYNC, WRITE, MemoryDisk
from braidlog.testing.simulated.memory_files import MemoryFiles
from support.power_cuts import outcomes


def content(path: str) -> Callable[[Files], object]:
    return lambda files: files.read_bytes(path) if files.exists(path) else None


def test_synced_bytes_survive_a_power_cut_and_any_first_part_of_the_others_may() -> None:
    def prepare(files: Files) -> None:
        file = files.open_append("/d/a")
        files.sync_dir("/d")
        file.writev([b"sure"])
        file.sync()
        file.writev([b"12"])
        file.writev([b"34"])

    found = outcomes(prepare, content("/d/a"))
    whole = {b"sure", b"sure1", b"sure12", b"sure123", b"sure1234"}
    assert whole <= found
    # The length may arrive without the bytes.
    assert found - whole <= {b"sure\0\0", b"sure1\0", b"sure12\0\0", b"sure123\0"}
    assert found - whole


def test_an_unsynced_cut_may_be_undone_with_what_followed_it() -> None:
    def prepare(files: Files) -> None:
        file = files.open_append("/d/a")
        files.sync_dir("/d")
        file.writev([b"abcd"])
        file.sync()
        file.truncate(1)
        file.writev([b"xy"])

    found = outcomes(prepare, content("/d/a"))
    assert {b"abcd", b"a", b"ax", b"axy"} <= found


def test_a_file_whose_directory_was_not_synced_may_be_gone() -> None:
    def prepare(files: Files) -> None:
        file = files.open_append("/d/a")
        file.writev([b"abc"])
        file.sync()

    assert outcomes(prepare, content("/d/a")) == {None, b"abc"}


def test_names_survive_in_the_order_they_changed() -> None:
    def prepare(files: Files) -> None:
        files.write_atomic("/d/a", b"1")
        files.rename("/d/a", "/d/b")
        files.remove("/d/b")

    assert outcomes(prepare, lambda files: tuple(files.listdir("/d"))) == {("a",), ("b",), ()}


def test_a_lost_directory_takes_its_files_along() -> None:
    def prepare(files: Files) -> None:
        files.mkdir("/d/e")
        files.write_atomic("/d/e/a", b"1")

    assert outcomes(prepare, content("/d/e/a")) == {None, b"1"}


def test_a_full_disk_takes_a_part_and_says_so_until_there_is_room() -> None:
    disk = MemoryDisk(Random(3), ManualClock())
    files = MemoryFiles(disk)
    disk.capacity = 10
    file = files.open_append("/a")
    file.writev([b"12345678"])
    with pytest.raises(OSError) as full:
        file.writev([b"abcd"])
    assert full.value.errno == errno.ENOSPC
    assert files.read_bytes("/a") in (b"12345678", b"12345678a", b"12345678ab")
    file.truncate(0)
    assert files.disk_usage("/") == (10, 10)
    file.writev([b"0123456789"])
    files.remove("/a")
    assert files.disk_usage("/").free == 10


def test_faults_hit_the_operation_and_directory_they_name() -> None:
    disk = MemoryDisk(Random(3), ManualClock())
    files = MemoryFiles(disk)
    files.mkdir("/good")
    files.mkdir("/bad")
    disk.fail(SYNC, under="/bad", after=1)
    disk.fail(READ, under="/bad", lasting=True)
    good, bad = files.open_append("/good/a"), files.open_append("/bad/a")
    for file in (good, bad):
        file.writev([b"x"])
        file.sync()
    good.sync()
    with pytest.raises(OSError, match="Input/output"):
        bad.sync()
    bad.sync()
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            bad.pread(1, 0)
    assert good.pread(1, 0) == b"x"
    disk.repair()
    assert bad.pread(1, 0) == b"x"


def test_a_write_fault_writes_nothing() -> None:
    disk = MemoryDisk(Random(3), ManualClock())
    file = MemoryFiles(disk).open_append("/a")
    disk.fail(WRITE)
    with pytest.raises(OSError, match="Input/output"):
        file.writev([b"x"])
    assert file.size() == 0
