"""Lines of standard input as records."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import Final

from braidlog.cli.record_json import BadRecord, Parsed, record_from_json
from braidlog.core.errors import UserError
from braidlog.wire.records.reading import Record

_CHUNK: Final = 1 << 16
# Lines that come close together share a batch; a person's line is not kept waiting.
_LINGER_S: Final = 0.005
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
    ) -> None:
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
            timestamp=timestamp, key=self._or_null(key), value=self._or_null(value), headers=self._headers
        )
        return Parsed(record, None)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data is None or data == self._null else data


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


def read_lines(descriptor: int) -> Iterator[list[bytes]]:
    """Whole lines as they come; an empty list says that for the moment no more are there."""
    rest = b""
    while chunk := os.read(descriptor, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise UserError("a line is longer than 1 GiB; end records with newlines")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
        if not select.select([descriptor], [], [], _LINGER_S)[0]:
            yield []
    if rest:
        yield [rest]
