"""The writer's bytes, and the pieces it splices in instead of copying them."""

from __future__ import annotations

import pytest

from braidlog.core.slices import ByteSlice, FileSlice
from braidlog.wire.errors import EncodeError
from braidlog.wire.writer import READ_IN_AT_MOST, SPLICE_ABOVE, Writer


class MemoryFile:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def fileno(self) -> int:
        raise OSError("only in memory")

    def pread(self, size: int, position: int) -> bytes:
        return self.content[position : position + size]


def file_slice(size: int) -> FileSlice:
    return FileSlice(MemoryFile(b"<" + bytes(size) + b">"), 1, size)


def test_a_large_file_slice_is_not_read_while_writing() -> None:
    content = file_slice(SPLICE_ABOVE + 1)
    writer = Writer()
    writer.int16(7)
    writer.records(content, False)
    writer.boolean(True)
    assert writer.size == 2 + 4 + SPLICE_ABOVE + 1 + 1
    assert writer.parts() == [b"\x00\x07\x00\x00\x10\x01", content, b"\x01"]
    assert writer.getvalue() == b"\x00\x07\x00\x00\x10\x01" + bytes(SPLICE_ABOVE + 1) + b"\x01"
    assert writer.splices == [(6, content)]


def test_small_file_slices_are_read_until_they_are_many() -> None:
    writer = Writer()
    for _ in range(READ_IN_AT_MOST // SPLICE_ABOVE):
        writer.records(file_slice(SPLICE_ABOVE), False)
    assert len(writer.parts()) == 1
    one_more = file_slice(1)
    writer.records(one_more, False)
    assert writer.parts()[1:] == [one_more]


class FailingFile(MemoryFile):
    def pread(self, size: int, position: int) -> bytes:
        raise OSError("broken")


@pytest.mark.parametrize("file", [MemoryFile(b"short"), FailingFile(b"")])
def test_a_file_slice_that_cannot_be_read_whole_is_left_to_who_sends_it(file: MemoryFile) -> None:
    content = FileSlice(file, 0, 10)
    writer = Writer()
    writer.records(content, False)
    assert writer.parts() == [b"\x00\x00\x00\x0a", content]


def test_an_empty_file_slice_is_no_piece() -> None:
    writer = Writer()
    writer.records(FileSlice(MemoryFile(b""), 0, 0), True)
    assert writer.parts() == [b"\x01"]


@pytest.mark.parametrize("kind", ["bytes", "memoryview", "slice"])
def test_large_records_are_spliced_and_small_ones_copied(kind: str) -> None:
    def held(content: bytes) -> bytes | memoryview | ByteSlice:
        if kind == "bytes":
            return content
        return memoryview(content) if kind == "memoryview" else ByteSlice(b"<" + content + b">", 1, 1 + len(content))

    small, large = b"s" * SPLICE_ABOVE, b"l" * (SPLICE_ABOVE + 1)
    writer = Writer()
    writer.records(held(small), False)
    assert writer.splices == []
    writer.records(held(large), False)
    writer.records(held(large), False)
    parts = writer.parts()
    assert [bytes(part) for part in parts if not isinstance(part, FileSlice)][1::2] == [large, large]
    assert writer.getvalue() == b"\x00\x00\x10\x00" + small + (b"\x00\x00\x10\x01" + large) * 2
    assert writer.size == len(writer.getvalue())


def test_neighbouring_splices_have_nothing_between_them() -> None:
    piece = file_slice(SPLICE_ABOVE + 1)
    writer = Writer()
    writer.records(piece, True)
    assert writer.parts()[-1] is piece
    assert len(writer.parts()) == 2


def test_frames_begin_with_their_size() -> None:
    writer = Writer()
    writer.begin_frame()
    writer.int32(1)
    writer.records(FileSlice(MemoryFile(bytes(70_000)), 0, 70_000), False)
    writer.end_frame()
    assert writer.getvalue()[:4] == (4 + 4 + 70_000).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("int8", 128),
        ("int8", -129),
        ("int16", 2**15),
        ("uint16", -1),
        ("uint16", 2**16),
        ("int32", 2**31),
        ("int64", 2**63),
    ],
)
def test_numbers_that_do_not_fit_are_refused(method: str, value: int) -> None:
    # Compiled methods say TypeError to interpreted callers.
    with pytest.raises((ValueError, TypeError)):
        getattr(Writer(), method)(value)


def test_text_and_ids_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(EncodeError, match="longer"):
        Writer().string("x" * 32768, True)
    with pytest.raises(EncodeError, match="16 bytes"):
        Writer().uuid(b"short")
