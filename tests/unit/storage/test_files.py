from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.storage.files import File, Files, OsFile, OsFiles
from support.disks import small_disk
from support.files_contract import FilesContract


class TestOsFiles(FilesContract):
    @pytest.fixture
    def files(self) -> Files:
        return OsFiles()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)

    @pytest.fixture
    def own_disk(self, tmp_path: Path) -> Iterator[str]:
        """ext4 sets aside all that it has before it refuses: whatever else wrote to the machine's disk would fail."""
        with small_disk(tmp_path / "disk", 1 << 20) as disk:
            yield str(disk.inside)


def test_an_atomic_write_without_room_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles()
    files.write_atomic(str(tmp_path / "a"), b"old")

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(str(tmp_path / "a"), b"new")
    assert files.read_bytes(str(tmp_path / "a")) == b"old"
    assert files.listdir(str(tmp_path)) == ["a"]


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = os.writev
    calls = 0

    def at_most_seven(fd: int, parts: list[bytes]) -> int:
        nonlocal calls
        calls += 1
        return genuine(fd, [b"".join(parts)[:7]])

    file = OsFiles().open_append(str(tmp_path / "a"))
    monkeypatch.setattr(os, "writev", at_most_seven)
    file.writev([b"0123456789", b"", b"abcdef", b"ghijklmnopqrst"])
    assert file.pread(100, 0) == b"0123456789abcdefghijklmnopqrst"
    assert calls == 5
    file.close()


def test_a_system_that_writes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFiles().open_append(str(tmp_path / "a"))
    monkeypatch.setattr(os, "writev", lambda fd, parts: 0)
    with pytest.raises(OSError, match="wrote nothing"):
        file.writev([b"0123456789"])
    file.close()


def test_dropping_the_last_reference_closes_the_descriptor(tmp_path: Path) -> None:
    file: File | None = OsFiles().open_append(str(tmp_path / "a"))
    assert isinstance(file, OsFile)
    descriptor = file.fileno()
    os.fstat(descriptor)
    file = None
    gc.collect()
    with pytest.raises(OSError) as closed:
        os.fstat(descriptor)
    assert closed.value.errno == errno.EBADF
