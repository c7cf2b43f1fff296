"""Lines of standard input and of files as records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from braidlog.cli.record_bytes import BadRecord, as_it_is
from braidlog.cli.record_json import Parsed, record_from_json
from braidlog.core.errors import UserError
from braidlog.wire.records.reading import Record

_CHUNK: Final = 1 << 16
# A line without end would fill the memory; brokers take nothing near it.
_LONGEST_LINE: Final = 1 << 30

Headers = tuple[tuple[str, bytes | None], ...]


class TextLines:
    """A line is a value, or with a separator a key and a value; what equals `null` is null."""

    def __init__(
        self,
        key: bytes | None = None,
        key_separator: bytes | None = None,
        null: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        key_bytes: Callable[[bytes], bytes] = as_it_is,
        value_bytes: Callable[[bytes], bytes] = as_it_is,
    ) -> None:
        self._key_bytes = key_bytes
        self._value_bytes = value_bytes
        self._key = key
        self._separator = key_separator
        self._null = null
        self._headers = headers
        self._timestamp = timestamp

    def __call__(self, line: bytes, now_ms: int) -> Parsed:
        key, value = self._key, line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                raise BadRecord(f"no {self._separator.decode(errors='replace')!r} between a key and a value")
        timestamp = now_ms if self._timestamp is None else self._timestamp
        record = Record(
            timestamp=timestamp,
            key=None if key is None or key == self._null else self._key_bytes(key),
            value=None if value == self._null else self._value_bytes(value),
            headers=self._headers,
        )
        return Parsed(record, None)


class JsonLines:
    """A line is a JSON object; the options' headers come after its own."""

    def __init__(self, headers: Headers = (), timestamp: int | None = None) -> None:
        self._headers = headers
        self._timestamp = timestamp

    def __call__(self, line: bytes, now_ms: int) -> Parsed:
        parsed = record_from_json(line, now_ms)
        if self._timestamp is not None:
            parsed.record.timestamp = self._timestamp
        parsed.record.headers += self._headers
        return parsed


def read_lines(descriptor: int, delimiter: bytes = b"\n") -> Iterator[list[bytes]]:
    """Whole lines, in lists, as they come.

    A carriage return before a newline belongs to it; other delimiters are taken as they are.
    """
    rest = b""
    while chunk := os.read(descriptor, _CHUNK):
        *lines, rest = (rest + chunk).split(delimiter) if rest else chunk.split(delimiter)
        if len(rest) > _LONGEST_LINE:
            raise UserError("a line is longer than 1 GiB; end records with newlines, or say --delimiter")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines] if delimiter == b"\n" else lines
    if rest:
        yield [rest]
