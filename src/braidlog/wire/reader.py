"""Reads the protocol's primitives from one `bytes`, never past its end and never more than the bytes can hold."""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i32, i64

from braidlog.core.gil import yield_gil
from braidlog.core.slices import ByteSlice
from braidlog.wire.errors import MalformedError, TooManyElementsError

UUID_SIZE: Final = 16
# In both forms, though only the older one has no room for more.
MAX_TEXT: Final = 32767
UNBOUNDED: Final = 1 << 62
# Bytes between two pauses: less than a millisecond's work.
_PAUSE_EVERY: Final = 16384


@final
class Reader:
    """A position in `buffer[:end]`. `flex` asks for the compact forms (KIP-482): varint lengths plus one."""

    __slots__ = ("buffer", "elements_left", "end", "pause_at", "position")

    def __init__(self, buffer: bytes, position: int = 0, end: int | None = None) -> None:
        size = len(buffer)
        stop = size if end is None else end
        if not 0 <= position <= stop <= size:
            raise ValueError(f"cannot read {position}:{stop} of {size} bytes")
        self.buffer = buffer
        self.position: i64 = position
        self.end: i64 = stop
        # How many more elements the message's arrays may have; a broker sets a bound to what it decodes for a peer.
        self.elements_left: i64 = UNBOUNDED
        # Where to let other threads run, for who decodes in one that is not the loop's.
        self.pause_at: i64 = UNBOUNDED

    def remaining(self) -> int:
        return self.end - self.position

    def _take(self, size: i64) -> i64:
        """The position of the next `size` bytes, which are then behind us."""
        position = self.position
        if size < 0 or size > self.end - position:
            raise MalformedError(f"{size} bytes wanted at {position}, but only {self.end - position} are left")
        self.position = position + size
        if position >= self.pause_at:
            self.pause_at = position + _PAUSE_EVERY
            yield_gil()
        return position

    def pause_often(self) -> None:
        """Decode with pauses: a long message, in a thread."""
        self.pause_at = self.position + _PAUSE_EVERY

    def int8(self) -> i32:
        value: i32 = self.buffer[self._take(1)]
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        return self.buffer[self._take(1)] != 0

    def int16(self) -> i32:
        position = self._take(2)
        return i32(read_i16_be(self.buffer, position))

    def uint16(self) -> i32:
        position = self._take(2)
        return i32(read_i16_be(self.buffer, position)) & 0xFFFF

    def int32(self) -> i32:
        position = self._take(4)
        return read_i32_be(self.buffer, position)

    def int64(self) -> i64:
        position = self._take(8)
        return read_i64_be(self.buffer, position)

    def float64(self) -> float:
        position = self._take(8)
        return read_f64_be(self.buffer, position)

    def uuid(self) -> bytes:
        position = self._take(UUID_SIZE)
        return self.buffer[position : position + UUID_SIZE]

    def uvarint(self) -> i64:
        """Seven bits a byte, lowest first, at most 32 bits."""
        value: i64 = self.buffer[self._take(1)]
        if value < 128:
            return value
        value &= 0x7F
        shift: i64 = 7
        while shift < 35:
            byte: i64 = self.buffer[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 128:
                if value > 0xFFFFFFFF:
                    break
                return value
            shift += 7
        raise MalformedError(f"varint before {self.position} does not end within 32 bits")

    def _text_size(self, flex: bool) -> i64:
        if not flex:
            return i64(self.int16())
        size = self.uvarint() - 1
        if size > MAX_TEXT:
            raise MalformedError(f"text of {size} bytes before {self.position} is longer than {MAX_TEXT}")
        return size

    def _size(self, flex: bool) -> i64:
        return self.uvarint() - 1 if flex else i64(self.int32())

    def _text(self, size: i64) -> str:
        position = self._take(size)
        try:
            return self.buffer[position : position + size].decode("utf-8")
        except UnicodeDecodeError as problem:
            raise MalformedError(f"text at {position} is not UTF-8") from problem

    def string(self, flex: bool) -> str:
        size = self._text_size(flex)
        if size < 0:
            raise MalformedError(f"null text before {self.position}, where text is required")
        return self._text(size)

    def nullable_string(self, flex: bool) -> str | None:
        size = self._text_size(flex)
        return None if size < 0 else self._text(size)

    def blob(self, flex: bool) -> bytes:
        size = self._size(flex)
        if size < 0:
            raise MalformedError(f"null bytes before {self.position}, where bytes are required")
        position = self._take(size)
        return self.buffer[position : position + size]

    def nullable_blob(self, flex: bool) -> bytes | None:
        size = self._size(flex)
        if size < 0:
            return None
        position = self._take(size)
        return self.buffer[position : position + size]

    def records(self, flex: bool) -> ByteSlice | None:
        """Record batches stay where they are: a slice of this buffer."""
        size = self._size(flex)
        if size < 0:
            return None
        position = self._take(size)
        return ByteSlice(self.buffer, position, position + size)

    def count(self, flex: bool, smallest: i64) -> i64:
        """The length of an array whose elements take at least `smallest` bytes each."""
        count = self.nullable_count(flex, smallest)
        if count < 0:
            raise MalformedError(f"null array before {self.position}, where an array is required")
        return count

    def nullable_count(self, flex: bool, smallest: i64) -> i64:
        """As `count`, with -1 for null; checked before anything of that length is allocated."""
        count = self._size(flex)
        if count < 0:
            return -1
        if count * smallest > self.end - self.position:
            raise MalformedError(f"array of {count} before {self.position}, but {self.remaining()} bytes are left")
        self.elements_left -= count
        if self.elements_left < 0:
            raise TooManyElementsError(f"array of {count} before {self.position}: more elements than are allowed")
        return count

    def int8s(self, flex: bool) -> list[int]:
        return [self.int8() for _ in range(self.count(flex, 1))]

    def int32s(self, flex: bool) -> list[int]:
        return [self.int32() for _ in range(self.count(flex, 4))]

    def int64s(self, flex: bool) -> list[int]:
        return [self.int64() for _ in range(self.count(flex, 8))]

    def uuids(self, flex: bool) -> list[bytes]:
        return [self.uuid() for _ in range(self.count(flex, UUID_SIZE))]

    def strings(self, flex: bool) -> list[str]:
        return [self.string(flex) for _ in range(self.count(flex, 1 if flex else 2))]

    def nullable_int32s(self, flex: bool) -> list[int] | None:
        count = self.nullable_count(flex, 4)
        return None if count < 0 else [self.int32() for _ in range(count)]

    def nullable_strings(self, flex: bool) -> list[str] | None:
        count = self.nullable_count(flex, 1 if flex else 2)
        return None if count < 0 else [self.string(flex) for _ in range(count)]

    def present(self) -> bool:
        """The byte before a nullable struct: negative for null."""
        return self.int8() >= 0

    def tag_count(self) -> i64:
        """How many tagged fields follow; each takes at least two bytes."""
        count = self.uvarint()
        if count * 2 > self.end - self.position:
            raise MalformedError(f"{count} tagged fields, but {self.remaining()} bytes are left")
        return count

    def tag_end(self) -> i64:
        """Where the tagged field ends whose size stands here."""
        size = self.uvarint()
        if size > self.end - self.position:
            raise MalformedError(f"tagged field of {size} bytes, but {self.remaining()} bytes are left")
        return self.position + size

    def skip_to(self, position: i64) -> None:
        self.position = position

    def expect(self, position: i64) -> None:
        """A tagged field that we know must take exactly the bytes it announced."""
        if self.position != position:
            raise MalformedError(f"tagged field ends at {position}, but its content at {self.position}")

    def skip_tags(self) -> None:
        """Pass over the tagged fields of a struct that has none we know."""
        for _ in range(self.tag_count()):
            self.uvarint()
            self.position = self.tag_end()

    def finish(self) -> None:
        """Bytes after a message mean that it was read in another version than it was written in."""
        if self.position != self.end:
            raise MalformedError(f"{self.remaining()} bytes are left after the message")
