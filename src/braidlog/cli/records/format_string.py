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
from braidlog.cli.records.byte_formats import as_it_is
from braidlog.cli.records.record_text import (
    HEADERS,
    KEY,
    KEY_SIZE,
    LITERAL,
    OFFSET,
    TIME,
    TIMESTAMP,
    VALUE,
    VALUE_SIZE,
    FieldText,
    Headers,
    Part,
    RecordText,
)


class Style(NamedTuple):
    """How the bytes of a record are written, and what stands for null and after each record."""

    key: Callable[[bytes], bytes] = as_it_is
    value: Callable[[bytes], bytes] = as_it_is
    null: bytes = b"null"
    end: bytes = b""


def iso_time(timestamp_ms: int) -> bytes:
    if timestamp_ms < 0:
        return b"-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        # Later than year 9999: still a legal timestamp.
        return str(timestamp_ms).encode("ascii")
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode("ascii")


_FIELDS: Final[dict[str, bytes | str | int]] = {
    "n": "topic",
    "p": "partition",
    "o": OFFSET,
    "k": KEY,
    "v": VALUE,
    "K": KEY_SIZE,
    "V": VALUE_SIZE,
    "t": TIMESTAMP,
    "T": TIME,
    "h": HEADERS,
    "%": b"%",
}


class RecordFormat:
    def __init__(self, text: str) -> None:
        """Raises argparse.ArgumentTypeError, so that the class can be an option's type."""
        self._fields: list[bytes | str | int] = []
        for match in re.finditer(r"%(?P<field>.?)|[^%]+", unescaped(text), re.DOTALL):
            field = match["field"]
            if field is None:
                self._fields.append(match[0].encode())
            elif field in _FIELDS:
                self._fields.append(_FIELDS[field])
            else:
                raise argparse.ArgumentTypeError(f"{text!r}: %{field} is no field; known are %{' %'.join(_FIELDS)}")

    def of_partition(self, topic: str, partition: int, style: Style) -> RecordText:
        constants = {"topic": topic.encode(), "partition": str(partition).encode("ascii")}

        def headers(given: Headers) -> bytes:
            # A name that is not UTF-8 is shown as it is everywhere else.
            names = (name.decode("utf-8", "replace").encode() for name, _ in given)
            values = (style.null if value is None else value for _, value in given)
            return b",".join(name + b"=" + value for name, value in zip(names, values, strict=True))

        return RecordText(
            parts_of([constants[each] if isinstance(each, str) else each for each in (*self._fields, style.end)]),
            FieldText(None if style.key is as_it_is else style.key),
            FieldText(None if style.value is as_it_is else style.value),
            style.null,
            iso_time,
            headers,
        )


def parts_of(fields: list[bytes | int]) -> list[Part]:
    """Kinds of fields, and the bytes between them in one piece."""
    parts: list[Part] = []
    for field in fields:
        if isinstance(field, int):
            parts.append(Part(field))
        elif parts and parts[-1].kind == LITERAL:
            parts[-1].literal += field
        elif field:
            parts.append(Part(LITERAL, field))
    return parts
