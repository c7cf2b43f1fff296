"""Small text files of a data directory: read whole, replaced whole, the disk's errors named after the directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.core.errors import StorageFault
from braidlog.storage.files import Files


@contextmanager
def disk_faults(directory: str, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into the StorageFault of its data directory."""
    try:
        yield
    except OSError as problem:
        raise StorageFault(directory, f"cannot {doing}: {problem}", problem) from problem


def read_text(files: Files, directory: str, path: str) -> str | None:
    """The file's text, none if there is no such file; bytes that are no UTF-8 survive as replacement characters."""
    try:
        return files.read_bytes(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StorageFault(directory, f"cannot read {path}: {problem}", problem) from problem


def write_durably(files: Files, directory: str, path: str, text: str) -> None:
    try:
        files.write_atomic(path, text.encode())
    except OSError as problem:
        raise StorageFault(directory, f"cannot write {path}: {problem}", problem) from problem
