"""Keys and values as bytes, and back: Kafka's own formats by name, or what a program brings along.

A serializer may be given as

    a name              "str", "bytes", "json", "int32", …, or the name of Kafka's class for it (`StringSerializer`)
    a callable          value -> bytes or None
    an object           with `serialize(topic, value)`, and for readers `deserialize(topic, data)`
    nothing             the producer takes bytes, str (as UTF-8) and None; the consumer hands out bytes

None is a key or value that is not there, and stays None in both directions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

from braidlog.client.errors import SerializationError, SettingError
from braidlog.client.settings import Settings

KEY: Final = "key"
VALUE: Final = "value"

_KAFKA_PACKAGE: Final = "org.apache.kafka.common.serialization."
# Kafka's classes, without "Serializer" or "Deserializer".
_KAFKA_NAMES: Final = {
    "ByteArray": "bytes",
    "Bytes": "bytes",
    "ByteBuffer": "bytes",
    "String": "str",
    "Short": "int16",
    "Integer": "int32",
    "Long": "int64",
    "Float": "float",
    "Double": "double",
    "Boolean": "bool",
    "UUID": "uuid",
    "Void": "none",
}
_NUMBERS: Final = {
    "int16": (struct.Struct(">h"), int),
    "int32": (struct.Struct(">i"), int),
    "int64": (struct.Struct(">q"), int),
    "float": (struct.Struct(">f"), float),
    "double": (struct.Struct(">d"), float),
}


def serializer_of(settings: Settings, setting: str) -> Serializer | None:
    """What `key.serializer` or `value.serializer` stands for; None where nothing was set: `plain_bytes` is enough."""
    given = settings.object(setting)
    return None if given is None else Serializer(given, setting.partition(".")[0])


def deserializer_of(settings: Settings, setting: str) -> Deserializer | None:
    """The same for a reader; None where nothing is to be done, since bytes stay bytes."""
    given = settings.object(setting)
    if given is None or given == "bytes" or _kafka_name(given, "Deserializer") == "bytes":
        return None
    return Deserializer(given, setting.partition(".")[0])


class Serializer:
    """topic, value -> bytes; tells with a failure what a person needs: topic, part of the record, and what to do."""

    def __init__(self, given: object, part: str = VALUE) -> None:
        self._owner, self._convert = _converter(given, part, "serialize", "serializer", _TO_BYTES)
        self._part = part

    def __call__(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            data = self._convert(topic, value)
        except Exception as problem:
            raise _not_sent(self._part, topic, _told(problem)) from problem
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        reason = f"{self._part}_serializer returned {_kind(data)}; it has to return bytes or None"
        raise _not_sent(self._part, topic, reason)

    def close(self) -> None:
        _close(self._owner)


class Deserializer:
    """topic, bytes -> value."""

    def __init__(self, given: object, part: str = VALUE) -> None:
        self._owner, self._convert = _converter(given, part, "deserialize", "deserializer", _FROM_BYTES)
        self._part = part

    def __call__(self, topic: str, data: bytes) -> Any:
        try:
            return self._convert(topic, data)
        except Exception as problem:
            raise SerializationError(
                f"the {self._part} of a record of topic {topic} cannot be read: {_told(problem)}; "
                f"give the consumer another {self._part}_deserializer, or seek past the record"
            ) from problem

    def close(self) -> None:
        _close(self._owner)


def plain_bytes(part: str, topic: str, value: Any) -> bytes | None:
    """What a producer without a serializer makes of a key or value."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as problem:
            raise _not_sent(part, topic, _told(problem)) from problem
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    reason = (
        f"{_kind(value)} has no bytes of its own; give the producer {part}_serializer='json', "
        "another name, or a callable that returns bytes"
    )
    raise _not_sent(part, topic, reason)


def _not_sent(part: str, topic: str, reason: str) -> SerializationError:
    return SerializationError(f"a record for topic {topic} was not sent, its {part} cannot be serialized: {reason}")


def _close(owner: object) -> None:
    close = getattr(owner, "close", None)
    if callable(close):
        close()


def _converter(
    given: object, part: str, method: str, suffix: str, named: dict[str, Callable[[str, Any], Any]]
) -> tuple[object, Callable[[str, Any], Any]]:
    """Who brings the conversion along (none for those known by name), and the conversion."""
    if isinstance(given, str):
        name = _kafka_name(given, suffix.capitalize()) or given.lower()
        if name in named:
            return None, named[name]
        raise SettingError(
            f"{part}.{suffix}={given!r} is not known; use one of {', '.join(sorted(named))}, "
            f"or give a callable or an object with {method}()"
        )
    if isinstance(given, type):
        given = given()
    bound = getattr(given, method, None)
    if callable(bound):
        return given, bound
    if callable(given):
        return given, partial(_ignoring_topic, given)
    raise SettingError(
        f"{part}.{suffix}={given!r} is neither a name nor a callable, and it has no method {method}(topic, …)"
    )


def _kafka_name(given: object, suffix: str) -> str | None:
    if not isinstance(given, str):
        return None
    return _KAFKA_NAMES.get(given.removeprefix(_KAFKA_PACKAGE).removesuffix(suffix))


def _ignoring_topic(convert: Callable[[Any], Any], _topic: str, value: Any) -> Any:
    return convert(value)


def _bytes_as_they_are(_topic: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"expected bytes, not {_kind(value)}")


def _text_to_bytes(_topic: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"expected str, not {_kind(value)}")


def _text_from_bytes(_topic: str, data: bytes) -> str:
    return data.decode()


def _number_to_bytes(name: str, _topic: str, value: Any) -> bytes:
    layout, kind = _NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise TypeError(f"expected {_article(kind.__name__)}, not {_kind(value)}")
    try:
        return layout.pack(value)
    except (struct.error, OverflowError):
        raise ValueError(f"{value} does not fit {_article(name)}") from None


def _number_from_bytes(name: str, _topic: str, data: bytes) -> Any:
    layout, _ = _NUMBERS[name]
    if len(data) != layout.size:
        raise ValueError(f"{_article(name)} has {layout.size} bytes, not {len(data)}")
    return layout.unpack(data)[0]


def _bool_to_bytes(_topic: str, value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    raise TypeError(f"expected bool, not {_kind(value)}")


def _bool_from_bytes(_topic: str, data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise ValueError(f"a bool is one byte, 0 or 1, not {data[:8]!r}")
    return data == b"\x01"


def _uuid_to_bytes(_topic: str, value: Any) -> bytes:
    """As text, which is what Kafka's own writes."""
    if isinstance(value, UUID):
        return str(value).encode("ascii")
    raise TypeError(f"expected uuid.UUID, not {_kind(value)}")


def _uuid_from_bytes(_topic: str, data: bytes) -> UUID:
    return UUID(data.decode("ascii"))


def _json_to_bytes(_topic: str, value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _json_from_bytes(_topic: str, data: bytes) -> Any:
    return json.loads(data)


def _none_to_bytes(_topic: str, value: Any) -> bytes | None:
    raise TypeError(f"expected None, not {_kind(value)}")


def _none_from_bytes(_topic: str, data: bytes) -> None:
    raise ValueError(f"expected nothing, found {len(data)} bytes")


_TO_BYTES: Final[dict[str, Callable[[str, Any], Any]]] = {
    "bytes": _bytes_as_they_are,
    "str": _text_to_bytes,
    "bool": _bool_to_bytes,
    "uuid": _uuid_to_bytes,
    "json": _json_to_bytes,
    "none": _none_to_bytes,
    **{name: partial(_number_to_bytes, name) for name in _NUMBERS},
}
_FROM_BYTES: Final[dict[str, Callable[[str, Any], Any]]] = {
    "bytes": _bytes_as_they_are,
    "str": _text_from_bytes,
    "bool": _bool_from_bytes,
    "uuid": _uuid_from_bytes,
    "json": _json_from_bytes,
    "none": _none_from_bytes,
    **{name: partial(_number_from_bytes, name) for name in _NUMBERS},
}


def _kind(value: object) -> str:
    return _article(type(value).__name__)


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def _told(problem: Exception) -> str:
    """The message, with its type where that is not one of the plain ones raised here."""
    text = str(problem)
    return text if text and type(problem) in (TypeError, ValueError) else f"{type(problem).__name__}: {text}"
