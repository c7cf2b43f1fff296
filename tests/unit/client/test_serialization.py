"""Values to bytes as Kafka's own serializers write them, back again, and what is said when that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.errors import SerializationError, SettingError
from braidlog.client.serialization import Deserializer, Serializer, deserializer_of, plain_bytes, serializer_of
from braidlog.client.settings import CONSUMER, PRODUCER, Settings

SOME_ID = UUID("6d0c1d2e-3f40-4a51-8b62-73849586a7b8")
# Bytes as kafka-clients 3.9.1 writes them.
KNOWN: list[tuple[str, str, Any, str]] = [
    ("str", "String", "grüße", "6772c3bcc39f65"),
    ("bytes", "ByteArray", b"\x00\xff", "00ff"),
    ("int16", "Short", -2, "fffe"),
    ("int32", "Integer", 1 << 20, "00100000"),
    ("int64", "Long", -1, "ffffffffffffffff"),
    ("float", "Float", 1.5, "3fc00000"),
    ("double", "Double", -0.1, "bfb999999999999a"),
    ("bool", "Boolean", True, "01"),
    ("uuid", "UUID", SOME_ID, str(SOME_ID).encode().hex()),
]


@pytest.mark.parametrize(("name", "kafka", "value", "data"), KNOWN)
def test_formats_are_kafkas(name: str, kafka: str, value: Any, data: str) -> None:
    package = "org.apache.kafka.common.serialization."
    for given_name in (name, f"{kafka}Serializer", f"{package}{kafka}Serializer"):
        assert Serializer(given_name)("t", value) == bytes.fromhex(data)
    for given_name in (name, f"{kafka}Deserializer", f"{package}{kafka}Deserializer"):
        assert Deserializer(given_name)("t", bytes.fromhex(data)) == value


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": st.text(),
    "bytes": st.binary(),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids(),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    ).filter(lambda value: value is not None),
}


@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_everything_comes_back(data: st.DataObject, name: str) -> None:
    value = data.draw(VALUES[name])
    written = Serializer(name)("t", value)
    assert type(written) is bytes
    assert Deserializer(name)("t", written) == value


@pytest.mark.parametrize("name", [*VALUES, "none"])
def test_nothing_stays_nothing(name: str) -> None:
    assert Serializer(name)("t", None) is None


WRONG: list[tuple[Any, Any, str]] = [
    ("str", b"bytes", "expected str, not a bytes"),
    ("bytes", "text", "expected bytes, not a str"),
    ("int32", 1 << 31, "2147483648 does not fit an int32"),
    ("int32", "7", "expected an int, not a str"),
    ("int64", True, "expected an int, not a bool"),
    ("double", "1.0", "expected a float, not a str"),
    ("float", 1e300, "does not fit a float"),
    ("bool", 1, "expected bool, not an int"),
    ("uuid", str(SOME_ID), "expected uuid.UUID, not a str"),
    ("json", {1, 2}, "Object of type set is not JSON serializable"),
    ("none", "x", "expected None, not a str"),
    (lambda value: value["a"], {}, "KeyError: 'a'"),
    (lambda value: "text", 1, "value_serializer returned a str; it has to return bytes or None"),
]


@pytest.mark.parametrize(("given_one", "value", "reason"), WRONG)
def test_a_failure_says_where_and_why(given_one: Any, value: Any, reason: str) -> None:
    with pytest.raises(SerializationError) as failed:
        Serializer(given_one, "value")("orders", value)
    assert "a record for topic orders was not sent, its value cannot be serialized" in str(failed.value)
    assert reason in str(failed.value)


@pytest.mark.parametrize(
    ("given_one", "data", "reason"),
    [
        ("str", b"\xff", "UnicodeDecodeError"),
        ("int64", b"\x00", "an int64 has 8 bytes, not 1"),
        ("bool", b"\x02", "a bool is one byte, 0 or 1"),
        ("uuid", b"no", "badly formed"),
        ("json", b"{", "JSONDecodeError"),
        ("none", b"x", "expected nothing, found 1 bytes"),
        (lambda data: 1 // 0, b"", "ZeroDivisionError"),
    ],
)
def test_unreadable_bytes_say_what_to_do(given_one: Any, data: bytes, reason: str) -> None:
    with pytest.raises(SerializationError, match="the key of a record of topic orders cannot be read") as failed:
        Deserializer(given_one, "key")("orders", data)
    assert reason in str(failed.value)
    assert "another key_deserializer, or seek past the record" in str(failed.value)


class WithTopic:
    closed = False

    def serialize(self, topic: str, value: Any) -> bytes | None:
        return None if value == "" else bytearray(f"{topic}:{value}".encode())  # type: ignore[return-value]

    def deserialize(self, topic: str, data: bytes) -> tuple[str, bytes]:
        return topic, data

    def close(self) -> None:
        self.closed = True


def test_an_object_hears_the_topic() -> None:
    own = WithTopic()
    for given_one in (own, WithTopic):
        assert Serializer(given_one)("t", "x") == b"t:x"
        assert Serializer(given_one)("t", "") is None
        assert Deserializer(given_one)("t", b"x") == ("t", b"x")
    Serializer(own).close()
    assert own.closed
    Serializer("str").close()


def test_settings_name_them() -> None:
    producer = Settings.of(PRODUCER, {"key.serializer": "int32", "value.serializer": str.encode})
    key, value = serializer_of(producer, "key.serializer"), serializer_of(producer, "value.serializer")
    assert key is not None
    assert value is not None
    assert (key("t", 7), value("t", "x")) == (b"\x00\x00\x00\x07", b"x")
    assert serializer_of(Settings.of(PRODUCER), "key.serializer") is None
    consumer = Settings.of(CONSUMER, {"key.deserializer": "bytes", "value.deserializer": bytes.decode})
    assert deserializer_of(consumer, "key.deserializer") is None, "nothing to do"
    reading = deserializer_of(consumer, "value.deserializer")
    assert reading is not None
    assert reading("t", b"x") == "x"


@pytest.mark.parametrize("make", [Serializer, Deserializer])
@pytest.mark.parametrize("given_one", ["protobuf", 7])
def test_unknown_ones_are_refused(make: Callable[[object, str], object], given_one: object) -> None:
    with pytest.raises(SettingError, match=r"key\.\w*serializer"):
        make(given_one, "key")


def test_plain_values_need_no_serializer() -> None:
    plain: list[Any] = [None, b"b", bytearray(b"c"), memoryview(b"d"), "é"]
    assert [plain_bytes("key", "t", value) for value in plain] == [None, b"b", b"c", b"d", b"\xc3\xa9"]
    with pytest.raises(SerializationError, match=r"a dict has no bytes of its own; give .* value_serializer='json'"):
        plain_bytes("value", "t", {})
    with pytest.raises(SerializationError, match="surrogates not allowed"):
        plain_bytes("value", "t", "\ud800")
