"""The bytes of a record that was written with a registry, as Confluent's serializers lay them out.

    0        1               5
    +--------+---------------+----------
    |  0x00  |  schema id    |  body …
    +--------+---------------+----------
      magic    big endian

The id says which schema the body was written with. A Protobuf schema is a file with several messages, so the body
begins with the path to the one that is meant: how many steps, then for each the index of a message within the file,
or within the message before, all as zigzag varints. The path [0], the file's first message, is the single byte 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAGIC: Final = b"\x00"
HEADER_BYTES: Final = 5
# Messages nest by hand: a path that is longer is no path.
_DEEPEST: Final = 100
_LONGEST_VARINT: Final = 10


class NotFramed(ValueError):
    """The bytes do not begin as a registry's serializers begin theirs; the text says how they do."""


class Framed(NamedTuple):
    schema_id: int
    # Where the body begins.
    start: int


def header(schema_id: int) -> bytes:
    return MAGIC + schema_id.to_bytes(HEADER_BYTES - len(MAGIC), "big")


def framed(data: bytes) -> Framed:
    if len(data) < HEADER_BYTES or data[:1] != MAGIC:
        raise NotFramed(f"does not begin with a schema id: {data[:HEADER_BYTES].hex(' ') or 'it is empty'}")
    return Framed(int.from_bytes(data[1:HEADER_BYTES], "big"), HEADER_BYTES)


def message_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The path to a Protobuf message, and where the message begins."""
    count, at = _zigzag(data, start)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise NotFramed(f"has a path of {count} message indexes")
    path: list[int] = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise NotFramed(f"has the message index {index}")
        path.append(index)
    return tuple(path), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(data):
            raise NotFramed("ends within its message indexes")
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise NotFramed("has a message index of more than ten bytes")
