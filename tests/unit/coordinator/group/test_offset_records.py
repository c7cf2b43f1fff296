"""The layouts of keys and values, in every version that a log may hold."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.coordinator.group.offset_records import (
    OffsetAndMetadata,
    offset_key,
    offset_value,
    read_offset_value,
    text_units,
)
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.group_records import OffsetCommitKey
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_a_key_byte_for_byte() -> None:
    assert offset_key("g", "topic", 7) == b"\x00\x01" + b"\x00\x01g" + b"\x00\x05topic" + struct.pack(">i", 7)


def test_values_byte_for_byte() -> None:
    assert offset_value(5, 2, "m", 9, -1) == b"\x00\x03" + struct.pack(">qi", 5, 2) + b"\x00\x01m" + struct.pack(
        ">q", 9
    )
    assert offset_value(5, 2, "m", 9, 11) == b"\x00\x01" + struct.pack(">q", 5) + b"\x00\x01m" + struct.pack(
        ">qq", 9, 11
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            b"\x00\x00" + struct.pack(">q", 5) + b"\x00\x01m" + struct.pack(">q", 9),
            OffsetAndMetadata(5, -1, "m", 9, -1, 3),
        ),
        (
            b"\x00\x01" + struct.pack(">q", 5) + b"\x00\x01m" + struct.pack(">qq", 9, 11),
            OffsetAndMetadata(5, -1, "m", 9, 11, 3),
        ),
        (
            b"\x00\x02" + struct.pack(">q", 5) + b"\x00\x00" + struct.pack(">q", 9),
            OffsetAndMetadata(5, -1, "", 9, -1, 3),
        ),
        (
            b"\x00\x03" + struct.pack(">qi", 5, 8) + b"\x00\x00" + struct.pack(">q", 9),
            OffsetAndMetadata(5, 8, "", 9, -1, 3),
        ),
        (
            # A topic id in a tag, as newer brokers write it.
            b"\x00\x04" + struct.pack(">qi", 5, 8) + b"\x02m" + struct.pack(">q", 9) + b"\x01\x00\x10" + bytes(16),
            OffsetAndMetadata(5, 8, "m", 9, -1, 3),
        ),
    ],
)
def test_values_of_every_layout_are_read(value: bytes, expected: OffsetAndMetadata) -> None:
    assert read_offset_value(value, 3) == expected


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x05" + bytes(40), b"\xff\xff" + bytes(40), b"\x00\x03\x00"])
def test_values_that_make_no_sense(value: bytes) -> None:
    with pytest.raises(MalformedError):
        read_offset_value(value, 0)


@given(INT64, INT32, st.text(max_size=50), INT64, st.none() | st.integers(0, 2**63 - 1))
def test_values_come_back(offset: int, epoch: int, metadata: str, committed: int, expires: int | None) -> None:
    kept = -1 if expires is None else expires
    read = read_offset_value(offset_value(offset, epoch, metadata, committed, kept), 1)
    # The layout with an expiry has no room for the epoch.
    assert read == OffsetAndMetadata(offset, epoch if expires is None else -1, metadata, committed, kept, 1)


@given(st.text(max_size=30), st.text(max_size=30), INT32)
def test_keys_come_back(group: str, topic: str, partition: int) -> None:
    key = offset_key(group, topic, partition)
    assert read_version_prefix(key) == 1
    read = OffsetCommitKey.decode(reader_after_version(key), 1)
    assert (read.group, read.topic, read.partition) == (group, topic, partition)


@given(st.text(max_size=30))
def test_text_is_as_long_as_java_says(text: str) -> None:
    assert text_units(text) == sum(2 if ord(letter) > 0xFFFF else 1 for letter in text)
