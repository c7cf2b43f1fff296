"""Keys and values of the group and transaction topics: a message after the two bytes that say its version."""

from __future__ import annotations

from librt.strings import read_i16_be

from braidlog.wire.errors import MalformedError
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


def version_prefixed_bytes(message: Message, version: int) -> bytes:
    """
    ```
    version  int16
    message  in that version
    ```
    """
    writer = Writer()
    writer.int16(version)
    message.encode(writer, version)
    return writer.getvalue()


def read_version_prefix(content: bytes) -> int:
    """The version of a key or value; a key's version also says what kind of record it is."""
    if len(content) < 2:
        raise MalformedError(f"{len(content)} bytes have no version")
    return read_i16_be(content, 0)


def reader_after_version(content: bytes) -> Reader:
    """A reader that stands behind the version."""
    return Reader(content, 2)
