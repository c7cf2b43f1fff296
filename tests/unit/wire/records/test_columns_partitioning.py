"""Rows to partitions: Java's hash, turns for those without a key, numbers that were given."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import InvalidPartitionsError
from braidlog.wire.records.columns_partitioning import (
    StickyRowPartitioner,
    partition_rows_by_key,
    partition_rows_by_number,
)
from braidlog.wire.records.key_hash import murmur2, partition_for_key
from support.column_cases import bytes_column
from support.record_cases import quick, thorough


def numbers(packed: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(packed) // 4}i", packed))


@pytest.mark.parametrize(
    ("text", "java"),
    [
        # What org.apache.kafka.common.utils.Utils.murmur2 says of these.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(text: bytes, java: int) -> None:
    assert murmur2(text, 0, len(text)) == java & 0xFFFFFFFF


@thorough
@given(before=st.binary(max_size=5), text=st.binary(max_size=30), after=st.binary(max_size=3))
def test_the_hash_of_a_part_of_the_data(before: bytes, text: bytes, after: bytes) -> None:
    assert murmur2(before + text + after, len(before), len(text)) == murmur2(text, 0, len(text))


@quick
@given(keys=st.lists(st.none() | st.binary(max_size=9), max_size=30), partitions=st.integers(1, 7))
def test_rows_go_where_their_keys_do(keys: list[bytes | None], partitions: int) -> None:
    spread = partition_rows_by_key(
        bytes_column(keys), None, len(keys), partitions, StickyRowPartitioner([partitions - 1], 0)
    )
    expected: list[list[int]] = [[] for _ in range(partitions)]
    for row, key in enumerate(keys):
        expected[partitions - 1 if key is None else partition_for_key(key, partitions)].append(row)
    assert [numbers(rows) for rows in spread] == expected


def test_keyless_rows_take_turns_by_bytes() -> None:
    values = bytes_column([b"x" * 92] * 10)
    turns = StickyRowPartitioner([0, 2], 300)
    assert [numbers(rows) for rows in partition_rows_by_key(None, values, 10, 3, turns)] == [
        [0, 1, 2, 6, 7, 8],
        [],
        [3, 4, 5, 9],
    ]
    # The next table goes on where this one stopped.
    assert [numbers(rows) for rows in partition_rows_by_key(None, values, 3, 3, turns)] == [[2], [], [0, 1]]


def test_round_robin_is_a_turn_for_every_row() -> None:
    spread = partition_rows_by_key(
        None, bytes_column([None, b"x"] * 3), 6, 3, StickyRowPartitioner([0, 1, 2], 0, first=4)
    )
    assert [numbers(rows) for rows in spread] == [[2, 5], [0, 3], [1, 4]]


def test_given_numbers() -> None:
    assert [numbers(rows) for rows in partition_rows_by_number(struct.pack("<4i", 1, 0, 1, 1), 4, 3)] == [
        [1],
        [0, 2, 3],
        [],
    ]
    for wrong in (3, -1):
        with pytest.raises(InvalidPartitionsError, match=f"row 1 names partition {wrong} of a topic that has 3"):
            partition_rows_by_number(struct.pack("<2i", 0, wrong), 2, 3)
