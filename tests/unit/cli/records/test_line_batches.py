"""Batches of lines hold the records that the line by line way makes, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cli.records.input_lines import TextLines
from braidlog.cli.records.json_format import BadRecord
from braidlog.cli.records.line_batches import LineBatch, LineBatches
from braidlog.wire.records.batch import HEADER_SIZE
from braidlog.wire.records.columns_partitioning import StickyRowPartitioner
from braidlog.wire.records.encoding import encode_header, encode_headers
from braidlog.wire.records.key_hash import partition_for_key
from braidlog.wire.records.reading import Record, read_records

PARTITIONS = 3
NOW = 1_700_000_000_000


def batches(batch_size: int = 1 << 16, headers: Any = (), **options: Any) -> LineBatches:
    return LineBatches(
        PARTITIONS,
        StickyRowPartitioner(list(range(PARTITIONS)), batch_size),
        batch_size,
        encode_headers(headers),
        **options,
    )


def records_of(batch: LineBatch) -> list[Record]:
    stamp = batch.timestamp
    header = encode_header(batch.body, 0, -1, 0, batch.count - 1, stamp, stamp, -1, -1, -1, batch.count)
    return list(read_records(header + batch.body))


def content(record: Record) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, record.headers


@given(
    lines=st.lists(st.binary(max_size=80) | st.sampled_from([b"", b"NULL", b":", b"k:NULL", b"NULL:v"])),
    separator=st.sampled_from([None, b":", b"::"]),
    null=st.sampled_from([None, b"NULL", b""]),
    key=st.sampled_from([None, b"", b"key", b"NULL"]),
    headers=st.sampled_from([(), (("a", b"1"), ("b", None))]),
    batch_size=st.sampled_from([HEADER_SIZE, 150, 1 << 16]),
)
def test_the_records_are_those_of_single_lines(
    lines: list[bytes], separator: Any, null: Any, key: Any, headers: Any, batch_size: int
) -> None:
    if separator is not None:
        key = None
    making = batches(batch_size, headers, key=key, key_separator=separator, null=null)
    made = making.add(lines, NOW)
    parse = TextLines(key, separator, null, headers)
    expected = []
    for line in lines:
        try:
            expected.append(parse(line, NOW).record)
        except BadRecord:
            break
    assert making.taken == len(expected)
    for partition in range(PARTITIONS):
        # Of one partition in order; of the lines without a key only the multiset is known.
        got = [content(record) for batch in made if batch.partition == partition for record in records_of(batch)]
        keyed = [record for record in expected if record.key is not None]
        assert [each for each in got if each[1] is not None] == [
            content(record) for record in keyed if partition_for_key(record.key or b"", PARTITIONS) == partition
        ]
    everything = [content(record) for batch in made for record in records_of(batch)]
    assert sorted(everything, key=repr) == sorted(map(content, expected), key=repr)
    sizes = [len(record.key or b"") + len(record.value or b"") for record in expected]
    assert sum(batch.payload for batch in made) == sum(sizes)
    for batch in made:
        assert batch.count == 1 or HEADER_SIZE + len(batch.body) <= batch_size


def test_lines_without_a_key_fill_one_partition_after_the_other() -> None:
    making = batches(1000)
    made = making.add([b"x" * 92] * 40, NOW)
    assert {batch.partition for batch in made} == {0, 1, 2}
    assert sum(batch.count for batch in made) == 40


def test_a_partition_for_all() -> None:
    made = batches(partition=2, key=b"k").add([b"a", b"b"], NOW)
    assert [(batch.partition, batch.count) for batch in made] == [(2, 2)]


def test_nothing_is_left_for_the_next_lines() -> None:
    making = batches(partition=0)
    assert [batch.count for batch in making.add([b"a"], NOW)] == [1]
    second = making.add([b"b", b"c"], NOW + 5)
    assert [content(record) for record in records_of(second[0])] == [
        (NOW + 5, None, b"b", ()),
        (NOW + 5, None, b"c", ()),
    ]
    assert making.add([], NOW) == []


@pytest.mark.parametrize("size", [511, 512, 513, 100_000])
def test_long_lines(size: int) -> None:
    made = batches().add([b"small", b"z" * size, b"small"], NOW)
    assert [record.value for batch in made for record in records_of(batch)] != []
    assert sum(batch.payload for batch in made) == size + 10
