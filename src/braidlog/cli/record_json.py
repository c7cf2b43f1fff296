"""Records as JSON objects, one per line: what `consume --output json` prints, `produce --input json` takes.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}]}

Bytes that are not UTF-8 text stand as {"base64": "…"}; null is null.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, NamedTuple

from braidlog.wire.records.reading import Record

_KNOWN: Final = frozenset(("topic", "partition", "offset", "timestamp", "key", "value", "headers"))
_INT64: Final = 1 << 63


class BadRecord(ValueError):
    """The line is not a record; the text says why."""


class Parsed(NamedTuple):
    record: Record
    partition: int | None


def record_to_json(topic: str, partition: int, record: Record) -> str:
    return json.dumps(
        {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _to_json(record.key),
            "value": _to_json(record.value),
            "headers": [{"key": name, "value": _to_json(value)} for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def record_from_json(line: bytes, timestamp_ms: int) -> Parsed:
    """A record with the line's timestamp, or else the given one; its topic and offset are those of the past."""
    try:
        fields = json.loads(line)
    except ValueError as problem:
        raise BadRecord(f"not JSON: {problem}") from problem
    if not isinstance(fields, dict):
        raise BadRecord('not a JSON object such as {"key": "k", "value": "v"}')
    unknown = sorted(fields.keys() - _KNOWN)
    if unknown:
        raise BadRecord(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    record = Record(
        timestamp=_whole(fields, "timestamp", timestamp_ms),
        key=_from_json(fields.get("key"), "key"),
        value=_from_json(fields.get("value"), "value"),
        headers=_headers(fields.get("headers")),
    )
    partition = _whole(fields, "partition", -1)
    return Parsed(record, partition if "partition" in fields and fields["partition"] is not None else None)


def _to_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _from_json(value: Any, name: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as problem:
            raise BadRecord(f"{name} has half of a surrogate pair; write it as base64") from problem
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as problem:
            raise BadRecord(f"{name} is not valid base64") from problem
    raise BadRecord(f'{name} must be text, null or {{"base64": "…"}}')


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
        return tuple((name, _from_json(text, f"header {name}")) for name, text in value.items())
    if not isinstance(value, list):
        raise BadRecord("headers must be a list or an object")
    headers: list[tuple[str, bytes | None]] = []
    for each in value:
        if not isinstance(each, dict) or not isinstance(each.get("key"), str) or each.keys() - {"key", "value"}:
            raise BadRecord('each header must be {"key": "…", "value": "…"}')
        headers.append((each["key"], _from_json(each.get("value"), f"header {each['key']}")))
    return tuple(headers)
