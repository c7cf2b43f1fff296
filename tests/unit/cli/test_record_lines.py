from __future__ import annotations

import os

import pytest

from braidlog.cli.record_bytes import BadRecord, bytes_of
from braidlog.cli.record_lines import JsonLines, TextLines, read_lines


def test_lines_come_whole_however_they_are_written() -> None:
    reading, writing = os.pipe()
    lines = read_lines(reading)
    os.write(writing, b"one\ntw")
    assert next(lines) == [b"one"]
    os.write(writing, b"o\r\n\nlast")
    assert next(lines) == [b"two", b""]
    os.close(writing)
    assert list(lines) == [[b"last"]]
    os.close(reading)


def test_no_input_no_lines() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert list(read_lines(reading)) == []
    os.close(reading)


def test_a_line_is_a_value() -> None:
    record, partition = TextLines(key=b"k", headers=(("h", b"1"),))(b"a:b", 5)
    assert (record.key, record.value, record.headers, record.timestamp) == (b"k", b"a:b", (("h", b"1"),), 5)
    assert partition is None


def test_a_line_is_a_key_and_a_value() -> None:
    parse = TextLines(key_separator=b":", timestamp=9)
    record = parse(b"k:a:b", 5).record
    assert (record.key, record.value, record.timestamp) == (b"k", b"a:b", 9)
    assert parse(b":", 5).record.key == b""
    with pytest.raises(BadRecord, match="no ':' between"):
        parse(b"alone", 5)


def test_tombstones() -> None:
    record = TextLines(key_separator=b":", null=b"NULL")(b"k:NULL", 0).record
    assert (record.key, record.value) == (b"k", None)
    assert TextLines(key=None, null=b"NULL")(b"x", 0).record.key is None


def test_json_lines_with_the_options_timestamp_and_headers() -> None:
    record, partition = JsonLines((("b", b"2"),), 9)(b'{"value": "v", "headers": {"a": "1"}, "partition": 3}', 5)
    assert (record.value, record.timestamp, partition) == (b"v", 9, 3)
    assert record.headers == (("a", b"1"), ("b", b"2"))


def test_other_delimiters_are_taken_as_they_are() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\r\n--two--three\n")
    os.close(writing)
    assert list(read_lines(reading, b"--")) == [[b"one\r\n", b"two"], [b"three\n"]]
    os.close(reading)


def test_formats_of_keys_and_values() -> None:
    parse = TextLines(
        key_separator=b"=", null=b"-", key_bytes=bytes_of("hex", "key"), value_bytes=bytes_of("base64", "value")
    )
    record = parse(b"00ff=/wA=", 0).record
    assert (record.key, record.value) == (b"\x00\xff", b"\xff\x00")
    record = parse(b"00=-", 0).record
    assert (record.key, record.value) == (b"\x00", None)
    with pytest.raises(BadRecord, match="the key is not hexadecimal"):
        parse(b"0=AA==", 0)
