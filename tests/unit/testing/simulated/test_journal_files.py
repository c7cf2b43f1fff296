from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from braidlog.cluster.journal_files import JournalFiles, OsJournalFiles
from braidlog.core.clock import ManualClock
from braidlog.testing.simulated.disk import MemoryDisk
from braidlog.testing.simulated.journal_files import JournalOnFiles
from braidlog.testing.simulated.memory_files import MemoryFiles


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
