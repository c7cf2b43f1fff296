from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cluster.journal_files import OsJournalFiles


def test_partitions_of_a_topic_with_the_name_of_our_files_are_no_files_of_ours(tmp_path: Path) -> None:
    (tmp_path / "braidlog-store.journal-0").mkdir()
    files = OsJournalFiles(str(tmp_path))
    assert files.names() == []
    files.close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    files = OsJournalFiles(str(tmp_path))
    with pytest.raises(BlockingIOError, match="in use"):
        OsJournalFiles(str(tmp_path))
    files.close()
    OsJournalFiles(str(tmp_path)).close()
