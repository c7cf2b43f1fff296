"""Ranges that messages carry by reference: of a received frame, and of a file on its way to a socket."""

from __future__ import annotations

from typing import Protocol

from mypy_extensions import mypyc_attr


class ReadableFile(Protocol):
    """What the network needs of an open file."""

    def fileno(self) -> int:
        """The descriptor for sendfile; files of a simulation have none and raise OSError."""
        ...

    def pread(self, size: int, position: int) -> bytes: ...


@mypyc_attr(acyclic=True)
class ByteSlice:
    """`buffer[start:end]` without a copy: how a decoded request holds its record batches."""

    __slots__ = ("buffer", "end", "start")

    def __init__(self, buffer: bytes, start: int, end: int) -> None:
        self.buffer = buffer
        self.start = start
        self.end = end

    @property
    def size(self) -> int:
        return self.end - self.start

    def view(self) -> memoryview:
        return memoryview(self.buffer)[self.start : self.end]

    def tobytes(self) -> bytes:
        return self.buffer[self.start : self.end]


@mypyc_attr(acyclic=True)
class FileSlice:
    """`size` bytes of `file` from `position`; the file stays readable as long as the slice is referenced."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: ReadableFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def read(self) -> bytes:
        return self.file.pread(self.size, self.position)
