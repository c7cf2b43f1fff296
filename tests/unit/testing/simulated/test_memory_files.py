from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from braidlog.cluster.journal_files import JournalFiles, OsJournalFiles
from braidlog.core.clock import ManualClock
from braidlog.storage.files import Files
from braidlog.testing.simulated.disk import MemoryDisk
from braidlog.testing.simulated.loop import Process, ProcessEnded
from braidlog.testing.simulated.memory_files import JournalOnFiles, MemoryFiles
from support.files_contract import FilesContract
from support.power_cuts import outcomes


class TestMemoryFiles(FilesContract):
    @pytest.fixture
    def files(self) -> Files:
        files = MemoryFiles(MemoryDisk(Random(1), ManualClock()))
        files.mkdir("/root")
        return files

    @pytest.fixture
    def root(self) -> str:
        return "/root"


def content(path: str) -> Callable[[Files], object]:
    return lambda files: files.read_bytes(path) if files.exists(path) else None


def test_an_atomic_write_without_sync_may_leave_a_torn_file() -> None:
    def prepare(files: Files) -> None:
        files.write_atomic("/d/a", b"old")
        files.write_atomic("/d/a", b"new", sync=False)

    found = outcomes(prepare, content("/d/a"))
    assert {b"old", b"", b"new"} <= found


def test_an_atomic_write_with_sync_never_does() -> None:
    def prepare(files: Files) -> None:
        files.write_atomic("/d/a", b"old")
        files.write_atomic("/d/a", b"new")

    assert outcomes(prepare, content("/d/a")) == {b"new"}


def test_a_process_can_end_within_a_write_and_does_nothing_afterwards() -> None:
    kept: set[bytes] = set()
    for seed in range(100):
        disk = MemoryDisk(Random(seed), ManualClock())
        process = Process("writer")
        file = MemoryFiles(disk, process).open_append("/a")
        disk.end_process_after(1)
        file.writev([b"12"])
        with pytest.raises(ProcessEnded):
            file.writev([b"34"])
        assert not process.alive
        with pytest.raises(ProcessEnded):
            file.writev([b"56"])
        kept.add(MemoryFiles(disk).read_bytes("/a"))
    assert kept == {b"12", b"123", b"1234"}


@pytest.fixture(params=["disk", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> JournalFiles:
    if request.param == "disk":
        return OsJournalFiles(str(tmp_path))
    return JournalOnFiles(MemoryFiles(MemoryDisk(Random(1), ManualClock())), "/store")


def test_files_are_appended_cut_replaced_and_removed(journal: JournalFiles) -> None:
    assert journal.names() == []
    journal.append("b", b"12")
    journal.append("b", b"34")
    journal.sync("b")
    journal.write_whole("a", b"whole")
    journal.write_whole("a", b"new")
    assert journal.names() == ["a", "b"]
    assert journal.read("b") == b"1234"
    journal.truncate("b", 3)
    journal.append("b", b"5")
    assert journal.read("b") == b"1235"
    journal.remove("a")
    assert journal.names() == ["b"]
    journal.close()


def test_what_was_synced_survives_a_power_cut() -> None:
    lost = 0
    for seed in range(50):
        disk = MemoryDisk(Random(seed), ManualClock())
        journal = JournalOnFiles(MemoryFiles(disk), "/store")
        MemoryFiles(disk).sync_dir("/")
        journal.append("a", b"sure")
        journal.sync("a")
        journal.append("a", b"maybe")
        disk.cut_power()
        after = JournalOnFiles(MemoryFiles(disk), "/store").read("a")
        assert after.startswith(b"sure")
        lost += after != b"suremaybe"
    assert 0 < lost < 50
