"""The reader takes what the protocol allows and nothing beyond the end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.wire.errors import MalformedError
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


def test_integers_at_their_limits() -> None:
    content = struct.pack(">bbhhHiqd", -128, 127, -(2**15), 2**15 - 1, 2**16 - 1, -(2**31), -(2**63), 0.1)
    reader = Reader(content)
    assert [reader.int8(), reader.int8(), reader.int16(), reader.int16()] == [-128, 127, -(2**15), 2**15 - 1]
    assert [reader.uint16(), reader.int32(), reader.int64()] == [2**16 - 1, -(2**31), -(2**63)]
    assert reader.float64() == 0.1
    reader.finish()


def test_end_is_respected_although_the_buffer_goes_on() -> None:
    reader = Reader(bytes(100), 10, 13)
    with pytest.raises(MalformedError, match="4 bytes wanted at 10, but only 3 are left"):
        reader.int32()
    assert reader.int16() == 0
    assert reader.remaining() == 1


@pytest.mark.parametrize(("position", "end"), [(-1, 2), (3, 2), (0, 5)])
def test_a_range_outside_the_buffer_is_our_own_mistake(position: int, end: int) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        Reader(b"1234", position, end)


@given(st.integers(0, 2**32 - 1))
def test_varints_come_back(value: int) -> None:
    writer = Writer()
    writer.uvarint(value)
    reader = Reader(writer.getvalue())
    assert reader.uvarint() == value
    reader.finish()


@pytest.mark.parametrize("content", [b"\xff" * 5, b"\xff\xff\xff\xff\x1f", b"\x80" * 9 + b"\x00", b"\x80", b""])
def test_varints_end_within_32_bits(content: bytes) -> None:
    with pytest.raises(MalformedError):
        Reader(content).uvarint()


def test_text() -> None:
    assert Reader(b"\x00\x02hi").string(False) == "hi"
    assert Reader(b"\x03hi").string(True) == "hi"
    assert Reader(b"\xff\xff").nullable_string(False) is None
    assert Reader(b"\x00").nullable_string(True) is None
    for reader, flex in ((Reader(b"\xff\xff"), False), (Reader(b"\x00"), True)):
        with pytest.raises(MalformedError, match="null text"):
            reader.string(flex)
    with pytest.raises(MalformedError, match="not UTF-8"):
        Reader(b"\x03\xff\xfe").string(True)


def test_compact_text_is_no_longer_than_the_other_form_can_be() -> None:
    longest, longer = Writer(), Writer()
    for writer, size in ((longest, 32767), (longer, 32768)):
        writer.uvarint(size + 1)
        writer.out.write(b"x" * size)
    assert len(Reader(longest.getvalue()).string(True)) == 32767
    with pytest.raises(MalformedError, match="longer than 32767"):
        Reader(longer.getvalue()).string(True)


def test_records_are_a_slice_of_the_same_buffer() -> None:
    frame = b"\x00\x00\x00\x03abcrest"
    found = Reader(frame).records(False)
    assert found is not None
    assert found.buffer is frame
    assert (found.start, found.end) == (4, 7)
    assert Reader(b"\xff\xff\xff\xff").records(False) is None


@pytest.mark.parametrize("flex", [True, False])
def test_huge_counts_are_refused_before_anything_is_made(flex: bool) -> None:
    content = b"\xff\xff\xff\xff\x0f" if flex else b"\x7f\xff\xff\xff"
    for read in ("int8s", "int32s", "int64s", "strings", "uuids", "nullable_int32s", "nullable_strings", "blob"):
        with pytest.raises(MalformedError):
            getattr(Reader(content + bytes(50)), read)(flex)


def test_a_count_must_leave_room_for_its_elements() -> None:
    assert Reader(b"\x00\x00\x00\x02" + bytes(10)).count(False, 5) == 2
    with pytest.raises(MalformedError, match="array of 2"):
        Reader(b"\x00\x00\x00\x02" + bytes(9)).count(False, 5)
    with pytest.raises(MalformedError, match="null array"):
        Reader(b"\x00").count(True, 1)
    assert Reader(b"\x00").nullable_count(True, 1) == -1


def test_unknown_tags_are_passed_over_and_their_sizes_checked() -> None:
    reader = Reader(b"\x02\x05\x03abc\x09\x00!")
    reader.skip_tags()
    assert reader.remaining() == 1
    with pytest.raises(MalformedError, match="tagged field of 9 bytes"):
        Reader(b"\x01\x00\x09abc").skip_tags()
    with pytest.raises(MalformedError, match="tagged fields"):
        Reader(b"\xff\x01abc").skip_tags()
