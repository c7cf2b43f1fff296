from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import StorageFault
from braidlog.storage.dirs.text_files import disk_faults, read_text, write_durably
from braidlog.storage.files import OsFiles

FILES = OsFiles()


def test_text_is_replaced_whole_and_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    assert read_text(FILES, str(tmp_path), path) is None
    write_durably(FILES, str(tmp_path), path, "grün\n" * 100)
    write_durably(FILES, str(tmp_path), path, "grün\n")
    assert read_text(FILES, str(tmp_path), path) == "grün\n"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_bytes_that_are_no_text_are_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\xffb")
    assert read_text(FILES, str(tmp_path), str(tmp_path / "f")) == "a�b"


def test_errors_of_the_disk_name_the_directory_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    path = str(tmp_path / "f")
    with pytest.raises(StorageFault, match=r"cannot read .*/f") as refused:
        read_text(FILES, "/data", path)
    assert refused.value.directory == "/data"
    with pytest.raises(StorageFault, match=r"cannot write .*/f"):
        write_durably(FILES, "/data", path, "x")


def test_only_errors_of_the_disk_become_faults() -> None:
    with (
        pytest.raises(StorageFault, match=r"cannot close the log: .*broken") as refused,
        disk_faults("/d", "close the log"),
    ):
        raise OSError(5, "broken")
    assert isinstance(refused.value.__cause__, OSError)
    with pytest.raises(KeyError), disk_faults("/d", "close the log"):
        raise KeyError("a bug")
