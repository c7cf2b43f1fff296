"""A record as text, by a format such as `%p:%o %k=%v`.

    %n topic   %p partition   %o offset   %k key   %v value   %K, %V their sizes in bytes, -1 for null
    %t timestamp in milliseconds   %T the same as ISO 8601 in UTC   %h headers as name=value,…   %% a percent sign

Keys and values are written in the formats of `record_bytes`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from braidlog.cli.options import unescaped
from braidlog.cli.record_bytes import as_it_is
from braidlog.client.consumer.record import ConsumerRecord


class Style(NamedTuple):
    """How the bytes of a record are written, and what stands for null."""

    key: Callable[[bytes], bytes] = as_it_is
    value: Callable[[bytes], bytes] = as_it_is
    null: bytes = b"null"


Field = Callable[[ConsumerRecord, Style], bytes]


def _number(value: int) -> bytes:
    return str(value).encode("ascii")


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else _number(len(data))


def _iso(timestamp_ms: int) -> bytes:
    if timestamp_ms < 0:
        return b"-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        # Later than year 9999: still a legal timestamp.
        return _number(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode("ascii")


def _headers(record: ConsumerRecord, style: Style) -> bytes:
    null = style.null
    return b",".join(name.encode() + b"=" + (null if value is None else value) for name, value in record.headers)


_FIELDS: Final[dict[str, Field]] = {
    "n": lambda record, style: record.topic.encode(),
    "p": lambda record, style: _number(record.partition),
    "o": lambda record, style: _number(record.offset),
    "k": lambda record, style: style.null if record.key is None else style.key(record.key),
    "v": lambda record, style: style.null if record.value is None else style.value(record.value),
    "K": lambda record, style: _size(record.key),
    "V": lambda record, style: _size(record.value),
    "t": lambda record, style: _number(record.timestamp),
    "T": lambda record, style: _iso(record.timestamp),
    "h": _headers,
    "%": lambda record, style: b"%",
}


class RecordFormat:
    def __init__(self, text: str) -> None:
        """Raises argparse.ArgumentTypeError, so that the class can be an option's type."""
        self._parts: list[bytes | Field] = []
        for match in re.finditer(r"%(?P<field>.?)|[^%]+", unescaped(text), re.DOTALL):
            field = match["field"]
            if field is None:
                self._parts.append(match[0].encode())
            elif field in _FIELDS:
                self._parts.append(_FIELDS[field])
            else:
                raise argparse.ArgumentTypeError(f"{text!r}: %{field} is no field; known are %{' %'.join(_FIELDS)}")

    @property
    def is_value_alone(self) -> bool:
        return self._parts == [_FIELDS["v"]]

    def format(self, record: ConsumerRecord, style: Style) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record, style) for part in self._parts)
