from __future__ import annotations

from pathlib import Path

import pytest

from braidlog import __version__
from braidlog.cluster.journal_files import OsJournalFiles, StoredFiles
from braidlog.core.errors import NewerFormatError, UserError


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


def test_the_format_is_noted_with_who_used_it_last(tmp_path: Path) -> None:
    note = tmp_path / "braidlog-store.format"
    OsJournalFiles(str(tmp_path)).close()
    ours = note.read_text()
    assert ours == f'{{"version":1,"braidlog":"{__version__}"}}\n'
    note.write_text('{"version":1,"braidlog":"0.0.9"}')
    StoredFiles(str(tmp_path))
    assert "0.0.9" in note.read_text()
    files = OsJournalFiles(str(tmp_path))
    assert (note.read_text(), files.names()) == (ours, [])
    files.close()


def test_files_of_a_newer_braidlog_are_refused_and_left_alone(tmp_path: Path) -> None:
    note = tmp_path / "braidlog-store.format"
    note.write_text('{"version":2,"braidlog":"7.1.0","more":[]}')
    for kind in (OsJournalFiles, StoredFiles):
        with pytest.raises(
            NewerFormatError, match=r"format 2 was written by braidlog 7\.1\.0, and this one reads up to 1"
        ):
            kind(str(tmp_path))
    assert "7.1.0" in note.read_text()
    note.write_text("garbage")
    # The refusal has let the lock go.
    with pytest.raises(UserError, match="does not say the format"):
        OsJournalFiles(str(tmp_path))
