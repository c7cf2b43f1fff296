"""Offsets of a stream: the text that Spark keeps and compares, and batches that depend on nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_range import OffsetRange
from pyspark_braidlog.source.stream_offset import StreamOffset, by_topic, ranges

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))

_places = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "Z_9"]), st.integers(0, 12))
_offsets = st.dictionaries(_places, st.integers(0, 2**63 - 1))
_ids = st.dictionaries(st.sampled_from(["a", "b.c", "Z_9"]), st.text("abcXYZ-_09", min_size=22, max_size=22))
_ends = st.builds(StreamOffset, _offsets, _ids, _offsets)
_initials = st.builds(StreamOffset, _offsets, _ids, st.just({}), st.just(True))


@given(_ends | _initials)
def test_what_spark_keeps_reads_as_what_was_written(offset: StreamOffset) -> None:
    assert StreamOffset.of(json.loads(json.dumps(offset.written()))) == offset


@given(_ends)
def test_equal_offsets_are_equal_text(offset: StreamOffset) -> None:
    def shuffled(of: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict(reversed(of.items()))

    other = StreamOffset(shuffled(offset.offsets), dict(reversed(offset.ids.items())), shuffled(offset.begins))
    assert json.dumps(other.written()) == json.dumps(offset.written())


@given(_offsets, _ids, _offsets)
def test_where_a_stream_begins_never_looks_like_the_end_of_a_batch(
    offsets: dict[TopicPartition, int], ids: dict[str, str], begins: dict[TopicPartition, int]
) -> None:
    initial = StreamOffset(offsets, ids, is_initial=True)
    assert json.dumps(initial.written()) != json.dumps(StreamOffset(offsets, ids, begins).written())


def test_the_layout() -> None:
    offset = StreamOffset({T2: 55, T0: 12, T1: 7}, {"t": "id"}, {T2: 40})
    assert json.dumps(offset.written()) == (
        '{"@ids": {"t": "id"}, "@initial": {"t": {"2": 40}}, "t": {"0": 12, "1": 7, "2": 55}}'
    )


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    assert list(by_topic({TopicPartition("t", each): 0 for each in (10, 9, 2)})["t"]) == ["2", "9", "10"]


def test_offsets_of_sparks_own_connector_are_read() -> None:
    assert StreamOffset.of({"t": {"0": 12, "1": 7}}) == StreamOffset({T0: 12, T1: 7})


@pytest.mark.parametrize("foreign", [{"t": 5}, {"t": {"x": 5}}, {"@ids": 3}, {"@initial": [1]}, {"t": {"0": "a"}}])
def test_what_this_source_did_not_write_is_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(UserError, match="checkpoint"):
        StreamOffset.of(foreign)


def test_a_batch_goes_from_the_end_of_the_one_before() -> None:
    start, end = StreamOffset({T0: 3, T1: 9}, {"t": "id"}), StreamOffset({T0: 5, T1: 9}, {"t": "id"})
    assert ranges(start, end) == [OffsetRange("t", 0, 3, 5, "id")]


def test_the_first_batch_begins_where_it_says_and_not_where_latest_is_by_now() -> None:
    end = StreamOffset({T0: 5, T1: 9}, {"t": "id"}, {T0: 2, T1: 9})
    moved = StreamOffset({T0: 400, T1: 500}, {"t": "other"}, is_initial=True)
    assert ranges(moved, end) == [OffsetRange("t", 0, 2, 5, "id")]


def test_new_partitions_begin_where_the_end_says() -> None:
    start, end = StreamOffset({T0: 3}), StreamOffset({T0: 3, T1: 9}, {}, {T1: 4})
    assert ranges(start, end) == [OffsetRange("t", 1, 4, 9, "")]


def test_where_records_were_lost_the_end_says_where_to_go_on() -> None:
    start, end = StreamOffset({T0: 3, T1: 3}), StreamOffset({T0: 50, T1: 3}, {}, {T0: 40})
    assert ranges(start, end) == [OffsetRange("t", 0, 40, 50, "")]


def test_what_is_gone_is_not_read() -> None:
    assert ranges(StreamOffset({T0: 3, T1: 3}), StreamOffset({T1: 4})) == [OffsetRange("t", 1, 3, 4, "")]


def test_a_first_batch_of_another_source_is_not_guessed_at() -> None:
    """Read from 0 it would have too much, from what is latest by now too little."""
    theirs = StreamOffset({T0: 5, T1: 9})
    with pytest.raises(UserError, match="does not say where it begins"):
        ranges(StreamOffset({T0: 5, T1: 9}, {"t": "id"}, is_initial=True), theirs)
    # Later ones are known by the end of the batch before.
    assert ranges(StreamOffset({T0: 4, T1: 9}), theirs) == [OffsetRange("t", 0, 4, 5, "")]


@given(_ends, _ends)
def test_ranges_are_never_empty_and_lie_in_order(start: StreamOffset, end: StreamOffset) -> None:
    found = ranges(start, end)
    assert all(each.size > 0 for each in found)
    assert [each[:2] for each in found] == sorted({each[:2] for each in found})


def test_between_an_offset_and_itself_there_is_nothing() -> None:
    """Where a batch began is no matter of the next one, which may be without data."""
    end = StreamOffset({T0: 9}, {"t": "id"}, begins={T0: 4})
    assert ranges(StreamOffset({T0: 4}), end)
    assert ranges(end, end) == []
