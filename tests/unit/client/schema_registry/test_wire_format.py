"""The frame before a record's body: schema ids, and the paths to Protobuf messages."""

from __future__ import annotations

import pytest

from braidlog.client.schema_registry.wire_format import Framed, NotFramed, framed, header, message_indexes


def test_a_schema_id_is_four_bytes_behind_a_zero() -> None:
    assert header(258) == b"\x00\x00\x00\x01\x02"
    assert framed(header(258) + b"body") == Framed(258, 5)
    assert framed(b"\x00\xff\xff\xff\xff").schema_id == 2**32 - 1


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x01", b'{"id": 1}', b"\x01\x00\x00\x00\x01"])
def test_other_bytes_are_told_apart(data: bytes) -> None:
    with pytest.raises(NotFramed, match=data[:5].hex(" ") or "it is empty"):
        framed(data)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("00", (0,)),  # as serializers shorten it
        ("02 00", (0,)),
        ("02 02", (1,)),
        ("04 00 02", (0, 1)),
        ("06 04 00 d0 0f", (2, 0, 1000)),
    ],
)
def test_message_indexes_are_zigzag_varints(written: str, path: tuple[int, ...]) -> None:
    data = bytes.fromhex(written)
    assert message_indexes(b"....." + data + b"body", 5) == (path, 5 + len(data))
    if len(data) > 1:
        with pytest.raises(NotFramed, match="ends within"):
            message_indexes(data[:-1], 0)


@pytest.mark.parametrize(
    ("written", "reported"),
    [("", "ends within"), ("01", "path of -1"), ("02 01", "index -1"), ("ff" * 11, "ten bytes")],
)
def test_what_is_no_path_is_told(written: str, reported: str) -> None:
    with pytest.raises(NotFramed, match=reported):
        message_indexes(bytes.fromhex(written), 0)


def test_a_path_of_very_many_steps_is_refused() -> None:
    with pytest.raises(NotFramed, match="path of 101"):
        message_indexes(b"\xca\x01" + b"\x00" * 200, 0)
