"""Positions move on, leaders are followed, gaps are told."""

from __future__ import annotations

import pytest
from client_fakes import TOPIC, FakeCluster, Patience, fetched

from braidlog.client.consuming import TopicReader
from braidlog.client.node import NoConnection
from braidlog.core.protocol_errors import (
    CorruptMessageError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
)
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record


def batch(base: int, *values: bytes) -> bytes:
    return build_batch([Record(timestamp=1, value=value) for value in values], base_offset=base)


def reader_of(
    cluster: FakeCluster, positions: dict[int, int], gaps: list[tuple[int, int, int]] | None = None
) -> TopicReader:
    def on_gap(partition: int, position: int, start: int) -> None:
        assert gaps is not None
        gaps.append((partition, position, start))

    return TopicReader(cluster, TOPIC, positions, on_gap=on_gap, new_retry=Patience().retry)


def test_reads_on_where_it_was() -> None:
    cluster = FakeCluster([1])
    cluster.fakes[1].fetches.extend([fetched(0, batch(0, b"a", b"b")), fetched(0, batch(2, b"c"))])
    reader = reader_of(cluster, {0: 0})
    first, second = reader.poll(0.1), reader.poll(0.1)
    assert [record.value for record in first[0].records] == [b"a", b"b"]
    assert [record.value for record in second[0].records] == [b"c"]
    assert cluster.fakes[1].fetched_from == [{0: 0}, {0: 2}]
    assert reader.poll(0.1) == []


def test_asks_each_leader_for_its_partitions_and_only_the_wanted_ones() -> None:
    cluster = FakeCluster([1, 2, 1])
    reader = reader_of(cluster, {0: 5, 1: 6, 2: 7})
    reader.poll(0.1)
    assert cluster.fakes[1].fetched_from == [{0: 5, 2: 7}]
    assert cluster.fakes[2].fetched_from == [{1: 6}]
    reader.poll(0.1, {1})
    assert len(cluster.fakes[1].fetched_from) == 1


@pytest.mark.parametrize("trouble", ["moved", "restarted"])
def test_waits_for_a_leader_that_moves_or_restarts(trouble: str) -> None:
    cluster = FakeCluster([1])
    code = NotLeaderOrFollowerError.code
    cluster.fakes[1].fetches.append(fetched(0, error_code=code) if trouble == "moved" else NoConnection("lost"))
    cluster.fakes[1].fetches.append(fetched(0, batch(0, b"a")))
    reader = reader_of(cluster, {0: 0})
    assert reader.poll(0.1) == []
    assert [record.value for record in reader.poll(0.1)[0].records] == [b"a"]
    assert cluster.refreshed == 2


def test_waits_for_metadata_as_well() -> None:
    def away(cluster: FakeCluster) -> None:
        if cluster.refreshed < 4:
            raise NoConnection("nobody answers")

    cluster = FakeCluster([1], away)
    cluster.fakes[1].fetches.extend([NoConnection("lost"), fetched(0, batch(0, b"a"))])
    reader = reader_of(cluster, {0: 0})
    assert [reader.poll(0.1) for _ in range(3)] == [[], [], []]
    assert [record.value for record in reader.poll(0.1)[0].records] == [b"a"]


def test_a_leader_that_stays_away_is_told_in_the_end() -> None:
    cluster = FakeCluster([1])
    cluster.fakes.clear()
    reader = reader_of(cluster, {0: 0})
    with pytest.raises(NoConnection):
        list(iter(lambda: reader.poll(0.1), None))
    assert cluster.refreshed > 3


def test_retention_that_overtook_the_reader_is_told() -> None:
    cluster = FakeCluster([1])
    cluster.starts = {0: 100}
    cluster.fakes[1].fetches.append(fetched(0, error_code=OffsetOutOfRangeError.code))
    gaps: list[tuple[int, int, int]] = []
    reader = reader_of(cluster, {0: 5}, gaps)
    assert reader.poll(0.1) == []
    assert gaps == [(0, 5, 100)]
    assert reader.positions == {0: 100}


def test_an_offset_past_the_end_is_an_error() -> None:
    cluster = FakeCluster([1])
    cluster.fakes[1].fetches.append(fetched(0, error_code=OffsetOutOfRangeError.code))
    with pytest.raises(OffsetOutOfRangeError, match="no offset 500 yet"):
        reader_of(cluster, {0: 500}).poll(0.1)


def test_other_refusals_are_raised() -> None:
    cluster = FakeCluster([1])
    cluster.fakes[1].fetches.append(fetched(0, error_code=KafkaStorageError.code))
    with pytest.raises(KafkaStorageError, match="orders-0"):
        reader_of(cluster, {0: 0}).poll(0.1)


def test_bytes_without_a_whole_batch_do_not_loop_for_ever() -> None:
    cluster = FakeCluster([1])
    cluster.fakes[1].fetches.append(fetched(0, batch(0, b"a")[:30]))
    with pytest.raises(CorruptMessageError, match="no whole batch at offset 0"):
        reader_of(cluster, {0: 0}).poll(0.1)
