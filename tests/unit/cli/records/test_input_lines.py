from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from braidlog.cli.interrupts import Interrupted, interrupts_heard, interrupts_wait
from braidlog.cli.records.byte_formats import BadRecord, bytes_of
from braidlog.cli.records.input_lines import BlockReader, JsonLines, TextLines, split_lines


def blocks_of(descriptor: int, delimiter: bytes = b"\n") -> list[bytes]:
    reader = BlockReader(descriptor, delimiter)
    blocks = []
    while not reader.is_at_end:
        reader.wait()
        blocks.append(reader.read())
    return [block for block in blocks if block]


def test_lines_come_whole_however_they_are_written() -> None:
    reading, writing = os.pipe()
    reader = BlockReader(reading)
    for written, read in ((b"one\ntw", b"one\n"), (b"o\r", b""), (b"\n\nlast", b"two\r\n\n")):
        os.write(writing, written)
        assert reader.read() == read
    os.close(writing)
    assert reader.read() == b"last"
    assert reader.is_at_end
    os.close(reading)


@pytest.mark.parametrize("delimiter", [b"\n", b"--", b"<end>"])
def test_a_delimiter_may_come_in_pieces(delimiter: bytes) -> None:
    text = delimiter.join([b"one", b"", b"-two-", b"<e", b"rest"])
    reading, writing = os.pipe()
    reader = BlockReader(reading, delimiter)
    read = []
    for at in range(len(text)):
        os.write(writing, text[at : at + 1])
        read.append(reader.read())
    os.close(writing)
    assert b"".join(read) + reader.read() == text
    assert all(block.endswith(delimiter) for block in read if block)
    assert b"".join(read) == text.removesuffix(b"rest")
    os.close(reading)


@pytest.mark.parametrize("pieces", [(b"a\n\n\n", b"b\n\nc"), (b"a\n", b"\n\nb\n\nc"), (b"a\n\n\nb\n\n", b"c")])
def test_delimiters_that_could_overlap_are_found_from_the_left(pieces: tuple[bytes, ...]) -> None:
    reading, writing = os.pipe()
    reader = BlockReader(reading, b"\n\n")
    lines = []
    for piece in pieces:
        os.write(writing, piece)
        lines += split_lines(reader.read(), b"\n\n")
    os.close(writing)
    assert [*lines, *split_lines(reader.read(), b"\n\n")] == [b"a", b"\nb", b"c"]
    os.close(reading)


def test_what_comes_soon_is_waited_for() -> None:
    reading, writing = os.pipe()
    reader = BlockReader(reading, linger_s=60.0)
    os.write(writing, b"one\n")
    later = threading.Thread(target=lambda: (os.write(writing, b"two\n"), os.close(writing)))
    later.start()
    assert reader.read() == b"one\ntwo\n"
    assert reader.is_at_end
    later.join()
    os.close(reading)


def test_who_is_told_to_end_waits_no_longer() -> None:
    reading, writing = os.pipe()
    reader = BlockReader(reading, linger_s=40.0)
    os.write(writing, b"one\n")
    read = []

    def read_interrupted() -> None:
        with interrupts_wait():
            signal.raise_signal(signal.SIGTERM)
            read.append(reader.read())

    began = time.monotonic()
    with interrupts_heard(), pytest.raises(Interrupted):
        read_interrupted()
    assert read == [b"one\n"]
    assert time.monotonic() - began < 20
    os.close(reading)
    os.close(writing)


def test_no_input_no_lines() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert blocks_of(reading) == []
    os.close(reading)


def test_a_line_longer_than_a_block(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(b"x" * 3_000_000 + b"\n" + b"y" * 2_000_000 + b"\nz")
    with file.open("rb") as opened:
        blocks = blocks_of(opened.fileno())
    assert b"".join(blocks) == file.read_bytes()
    assert [len(line) for line in split_lines(b"".join(blocks))] == [3_000_000, 2_000_000, 1]


def test_lines_of_a_block() -> None:
    assert split_lines(b"") == []
    assert split_lines(b"one\n\nlast") == [b"one", b"", b"last"]
    assert split_lines(b"one\r\n\r\ntwo\nlast\r") == [b"one", b"", b"two", b"last\r"]
    assert split_lines(b"one\r\n--two--three\n", b"--") == [b"one\r\n", b"two", b"three\n"]


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
