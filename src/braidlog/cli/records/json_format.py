"""Records as JSON objects, one per line: what `consume --output json` prints, `produce --input json` takes.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}]}

Bytes that are not UTF-8 text stand as {"base64": "…"}; null is null. Asked for another format, keys and values stand as
{"hex": "…"}, {"base64": "…"} or {"json": …}, which are taken back as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from braidlog.cli.records.byte_formats import BadRecord, document_of, from_json_value, json_value, plain_json
from braidlog.cli.records.format_string import iso_time, parts_of
from braidlog.cli.records.record_text import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE, FieldText, Headers, RecordText
from braidlog.wire.records.reading import Record

__all__ = ["BadRecord", "JsonFormat", "Parsed", "record_from_json"]

_KNOWN: Final = frozenset(("topic", "partition", "offset", "timestamp", "key", "value", "headers"))
_INT64: Final = 1 << 63


Text = Callable[[bytes], bytes]
Before = Callable[[str, Text], Text]


class Parsed(NamedTuple):
    record: Record
    partition: int | None


class JsonFormat:
    """A record as one line of JSON, with keys and values in the formats asked for.

    `before` may put a decoder before the text of "key" or of "value".
    """

    def __init__(self, key_format: str = "raw", value_format: str = "raw", before: Before | None = None) -> None:
        self._key = _field_text(key_format, "key", before)
        self._value = _field_text(value_format, "value", before)

    def of_partition(self, topic: str, partition: int, end: bytes = b"\n") -> RecordText:
        fields: list[bytes | int] = [
            b'{"topic": ' + _dumped(topic) + b', "partition": %d, "offset": ' % partition, OFFSET,
            b', "timestamp": ', TIMESTAMP, b', "key": ', KEY, b', "value": ', VALUE, b', "headers": ', HEADERS,
            b"}" + end,
        ]  # fmt: skip
        return RecordText(parts_of(fields), self._key, self._value, b"null", iso_time, _headers_text)


def _field_text(form: str, part: str, before: Before | None) -> FieldText:
    of = json_value(form)

    def text(data: bytes) -> bytes:
        try:
            return _dumped(of(data))
        except RecursionError:
            # Just not too deep to be read, and too deep to be written.
            return _dumped(plain_json(data))

    if form == "raw":
        return FieldText(_text, is_quoted=True)
    if before is not None and form == "json":
        return FieldText(before(part, text))
    # Printable ASCII stands in text as it does in raw, and is most of what there is.
    return FieldText(text, is_quoted=form == "text")


def _text(data: bytes) -> bytes:
    try:
        return encode_basestring(data.decode("utf-8")).encode("utf-8")
    except UnicodeDecodeError:
        return _dumped(plain_json(data))


def _headers_text(headers: Headers) -> bytes:
    value_of = json_value("raw")
    return _dumped([{"key": name.decode("utf-8", "replace"), "value": value_of(value)} for name, value in headers])


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def record_from_json(line: bytes, timestamp_ms: int) -> Parsed:
    """A record with the line's timestamp, or else the given one; its topic and offset are those of the past."""
    try:
        fields = document_of(line)
    except ValueError as problem:
        raise BadRecord(f"not JSON: {problem}") from problem
    if not isinstance(fields, dict):
        raise BadRecord('not a JSON object such as {"key": "k", "value": "v"}')
    unknown = sorted(fields.keys() - _KNOWN)
    if unknown:
        raise BadRecord(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    record = Record(
        timestamp=_whole(fields, "timestamp", timestamp_ms),
        key=from_json_value(fields.get("key"), "key"),
        value=from_json_value(fields.get("value"), "value"),
        headers=_headers(fields.get("headers")),
    )
    partition = _whole(fields, "partition", -1)
    return Parsed(record, partition if "partition" in fields and fields["partition"] is not None else None)


def _whole(fields: dict[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < _INT64:
        raise BadRecord(f"{name} must be a whole number")
    return value


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    """A list of {"key", "value"}, which may repeat a name, or a plain object."""
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((name, from_json_value(text, f"header {name}")) for name, text in value.items())
    if not isinstance(value, list):
        raise BadRecord("headers must be a list or an object")
    headers: list[tuple[str, bytes | None]] = []
    for each in value:
        if not isinstance(each, dict) or not isinstance(each.get("key"), str) or each.keys() - {"key", "value"}:
            raise BadRecord('each header must be {"key": "…", "value": "…"}')
        headers.append((each["key"], from_json_value(each.get("value"), f"header {each['key']}")))
    return tuple(headers)
