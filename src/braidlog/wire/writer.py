"""Writes the protocol's primitives; large record batches and large file slices are spliced in, never copied."""

from __future__ import annotations

import contextlib
from typing import Final, final

from librt.strings import BytesWriter, write_f64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from braidlog.core.slices import ByteSlice, FileSlice
from braidlog.wire.errors import EncodeError
from braidlog.wire.reader import MAX_TEXT, UUID_SIZE

# Copying a few KiB costs less than one more piece in a gathered write.
SPLICE_ABOVE: Final = 4096
# So much of small file slices is read into one message: what a peer that reads slowly makes us keep.
READ_IN_AT_MOST: Final = 1 << 18

Records = bytes | memoryview | ByteSlice | FileSlice | None
Piece = bytes | memoryview | FileSlice


@final
class Writer:
    """The bytes so far, and `splices`: the pieces that belong between them, each with its place in those bytes.

    `flex` asks for the compact forms (KIP-482): varint lengths plus one.
    """

    __slots__ = ("_read_in", "out", "spliced", "splices")

    def __init__(self) -> None:
        self.out = BytesWriter()
        # Bytes of file slices.
        self._read_in: i64 = 0
        self.splices: list[tuple[int, Piece]] = []
        self.spliced: i64 = 0

    @property
    def size(self) -> int:
        """Bytes of the whole message, spliced pieces included."""
        return len(self.out) + self.spliced

    def int8(self, value: i32) -> None:
        if value < -128 or value > 127:
            raise ValueError(f"{value} does not fit int8")
        self.out.append(value & 0xFF)

    def boolean(self, value: bool) -> None:
        self.out.append(1 if value else 0)

    def int16(self, value: i16) -> None:
        write_i16_be(self.out, value)

    def uint16(self, value: i32) -> None:
        if value < 0 or value > 65535:
            raise ValueError(f"{value} does not fit uint16")
        self.out.append(value >> 8)
        self.out.append(value & 0xFF)

    def int32(self, value: i32) -> None:
        write_i32_be(self.out, value)

    def int64(self, value: i64) -> None:
        write_i64_be(self.out, value)

    def float64(self, value: float) -> None:
        write_f64_be(self.out, value)

    def uuid(self, value: bytes) -> None:
        if len(value) != UUID_SIZE:
            raise EncodeError(f"an id has {UUID_SIZE} bytes, not {len(value)}")
        self.out.write(value)

    def uvarint(self, value: i64) -> None:
        while value > 127:
            self.out.append((value & 0x7F) | 0x80)
            value >>= 7
        self.out.append(value)

    def _length(self, size: i64, flex: bool) -> None:
        if size > 0x7FFFFFFE:
            raise EncodeError(f"{size} bytes or elements do not fit one field")
        if flex:
            self.uvarint(size + 1)
        else:
            write_i32_be(self.out, i32(size))

    def string(self, value: str, flex: bool) -> None:
        text = value.encode("utf-8")
        size = len(text)
        if size > MAX_TEXT:
            raise EncodeError(f"text of {size} bytes is longer than the protocol's {MAX_TEXT}")
        if flex:
            self.uvarint(size + 1)
        else:
            write_i16_be(self.out, i16(size))
        self.out.write(text)

    def nullable_string(self, value: str | None, flex: bool) -> None:
        if value is not None:
            self.string(value, flex)
        elif flex:
            self.out.append(0)
        else:
            write_i16_be(self.out, -1)

    def blob(self, value: bytes, flex: bool) -> None:
        self._length(len(value), flex)
        self.out.write(value)

    def nullable_blob(self, value: bytes | None, flex: bool) -> None:
        if value is not None:
            self.blob(value, flex)
        else:
            self.null(flex)

    def records(self, value: Records, flex: bool) -> None:
        if value is None:
            self.null(flex)
        elif isinstance(value, FileSlice):
            self._length(value.size, flex)
            if value.size > 0:
                self._file_slice(value)
        elif isinstance(value, ByteSlice):
            size = value.end - value.start
            self._length(size, flex)
            if size > SPLICE_ABOVE:
                self._splice(value.view(), size)
            else:
                self.out.write(value.tobytes())
        elif isinstance(value, bytes):
            self._length(len(value), flex)
            if len(value) > SPLICE_ABOVE:
                self._splice(value, len(value))
            else:
                self.out.write(value)
        else:
            self._length(value.nbytes, flex)
            if value.nbytes > SPLICE_ABOVE:
                self._splice(value, value.nbytes)
            else:
                self.out.write(value.tobytes())

    def _file_slice(self, value: FileSlice) -> None:
        size: i64 = value.size
        if size <= SPLICE_ABOVE and self._read_in + size <= READ_IN_AT_MOST:
            content = b""
            with contextlib.suppress(OSError):
                content = value.read()
            # Where it cannot be read whole, whoever sends it finds that out again, and ends the connection.
            if len(content) == size:
                self._read_in += size
                self.out.write(content)
                return
        self._splice(value, size)

    def _splice(self, piece: Piece, size: i64) -> None:
        self.splices.append((len(self.out), piece))
        self.spliced += size

    def count(self, count: i64, flex: bool) -> None:
        """The length of an array."""
        self._length(count, flex)

    def null(self, flex: bool) -> None:
        """A null array, bytes or records."""
        if flex:
            self.out.append(0)
        else:
            write_i32_be(self.out, -1)

    def int8s(self, values: list[int], flex: bool) -> None:
        self._length(len(values), flex)
        for value in values:
            self.int8(value)

    def int32s(self, values: list[int], flex: bool) -> None:
        self._length(len(values), flex)
        for value in values:
            write_i32_be(self.out, value)

    def int64s(self, values: list[int], flex: bool) -> None:
        self._length(len(values), flex)
        for value in values:
            write_i64_be(self.out, value)

    def uuids(self, values: list[bytes], flex: bool) -> None:
        self._length(len(values), flex)
        for value in values:
            self.uuid(value)

    def strings(self, values: list[str], flex: bool) -> None:
        self._length(len(values), flex)
        for value in values:
            self.string(value, flex)

    def nullable_int32s(self, values: list[int] | None, flex: bool) -> None:
        if values is None:
            self.null(flex)
        else:
            self.int32s(values, flex)

    def nullable_strings(self, values: list[str] | None, flex: bool) -> None:
        if values is None:
            self.null(flex)
        else:
            self.strings(values, flex)

    def present(self, value: bool) -> None:
        """The byte before a nullable struct."""
        self.out.append(1 if value else 0xFF)

    def tag(self, tag: i64, content: Writer) -> None:
        """A tagged field: its number, its size, its content."""
        body = content.getvalue()
        self.uvarint(tag)
        self.uvarint(len(body))
        self.out.write(body)

    def begin_frame(self) -> None:
        """Room for the frame's size, which `end_frame` fills in."""
        write_i32_be(self.out, 0)

    def end_frame(self) -> None:
        size: i64 = len(self.out) + self.spliced - 4
        if size > 0x7FFFFFFF:
            raise EncodeError(f"a frame of {size} bytes is larger than the protocol allows")
        self.out[0] = u8(size >> 24 & 0xFF)
        self.out[1] = u8(size >> 16 & 0xFF)
        self.out[2] = u8(size >> 8 & 0xFF)
        self.out[3] = u8(size & 0xFF)

    def parts(self) -> list[Piece]:
        """All bytes in order: what was written, cut where a splice belongs, and the splices themselves."""
        written = self.out.getvalue()
        if not self.splices:
            return [written]
        view = memoryview(written)
        pieces: list[Piece] = []
        done = 0
        for position, piece in self.splices:
            if position > done:
                pieces.append(view[done:position])
                done = position
            pieces.append(piece)
        if done < len(written):
            pieces.append(view[done:])
        return pieces

    def getvalue(self) -> bytes:
        """Everything in one piece; reads the file slices."""
        if not self.splices:
            return self.out.getvalue()
        return b"".join([piece.read() if isinstance(piece, FileSlice) else piece for piece in self.parts()])
