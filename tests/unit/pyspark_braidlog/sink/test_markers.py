"""What a marker says, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog import TopicPartition
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.errors import UserError
from pyspark_braidlog.sink.fingerprint import Fingerprint
from pyspark_braidlog.sink.markers import Marker, Step, check_same, newest, next_step
from pyspark_braidlog.sink.task_identity import TaskIdentity

NUMBERS = st.integers(0, 2**63 - 1)
PLACE = TopicPartition("out", 0)
# The least that a broker's offset.metadata.max.bytes is by default.
METADATA_LIMIT = 4096


def task(batch: int) -> TaskIdentity:
    return TaskIdentity("q", batch, 3, "run")


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 2**64 - 1))
def test_what_is_committed_reads_the_same(batch: int, rows: int, keys: int, values: int, checksum: int) -> None:
    marker = Marker(batch, Fingerprint(rows, keys, values, checksum), "a run")
    committed = marker.committed()
    assert committed.offset == batch
    assert len(committed.metadata) < METADATA_LIMIT
    assert Marker.read("g", committed) == marker


@pytest.mark.parametrize("metadata", ["", "{}", "[]", "7", '{"batch":7,"rows":1}', "not JSON"])
def test_what_somebody_else_committed_is_no_marker(metadata: str) -> None:
    with pytest.raises(UserError, match="group g holds the sink's marker, but something else was committed"):
        Marker.read("g", OffsetAndMetadata(7, metadata))


def test_an_offset_that_was_reset_is_noticed() -> None:
    committed = Marker(7, Fingerprint(), "r").committed()
    with pytest.raises(UserError, match="offset 0"):
        Marker.read("g", committed._replace(offset=0))


def test_the_newest_of_several_counts() -> None:
    older, newer = (Marker(batch, Fingerprint(batch), "r") for batch in (3, 4))
    elsewhere = TopicPartition("other", 0)
    found = newest("g", {PLACE: older.committed(), elsewhere: newer.committed()})
    assert found is not None
    assert found == (newer, elsewhere)
    assert newest("g", {}) is None


def test_where_one_topic_is_written_to_only_its_marker_counts() -> None:
    older, newer = (Marker(batch, Fingerprint(batch), "r") for batch in (3, 4))
    offsets = {PLACE: older.committed(), TopicPartition("other", 0): newer.committed()}
    assert newest("g", offsets, "out") == (older, PLACE)
    assert newest("g", offsets, "third") is None


def test_older_is_written_same_is_skipped_newer_is_refused() -> None:
    last = Marker(5, Fingerprint(), "r")
    assert next_step(task(6), last) is Step.WRITE
    assert next_step(task(0), None) is Step.WRITE
    assert next_step(task(5), last) is Step.SKIP
    with pytest.raises(UserError, match="wrote batch 5 already, but Spark is at batch 4: an old checkpoint"):
        next_step(task(4), last)


def test_a_batch_recomputed_differently_is_refused() -> None:
    before = Marker(5, Fingerprint(10, 20, 30, 40), "r")
    check_same(task(5), before, Fingerprint(10, 20, 30, 40))
    with pytest.raises(UserError, match=r"wrote 10 rows .* now has 11 rows"):
        check_same(task(5), before, Fingerprint(11, 20, 30, 40))
    with pytest.raises(UserError, match="that are not the same"):
        check_same(task(5), before, Fingerprint(10, 20, 30, 41))
