"""Batches by partition, leaders followed, nothing written twice."""

from __future__ import annotations

from random import Random

import pytest
from client_fakes import TOPIC, FakeCluster, Patience

from braidlog.client.partitioner import partition_of_key
from braidlog.client.producing import ACKS_NONE, TopicWriter
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    LeaderNotAvailableError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
)
from braidlog.wire.records.reading import Record


def writer_to(cluster: FakeCluster, patience: Patience | None = None, **options: int) -> TopicWriter:
    return TopicWriter(cluster, TOPIC, random=Random(3), new_retry=(patience or Patience()).retry, **options)


def record(value: str, key: str | None = None) -> Record:
    return Record(timestamp=1, key=None if key is None else key.encode(), value=value.encode())


def test_records_of_a_key_go_to_its_partition() -> None:
    cluster = FakeCluster([1, 1, 2])
    writer = writer_to(cluster)
    keys = [f"key-{number}" for number in range(50)]
    for key in keys:
        writer.add(record("v", key))
    writer.flush()
    logs = {**cluster.fakes[1].logs, **cluster.fakes[2].logs}
    assert {each.key.decode(): partition for partition, log in logs.items() for each in log if each.key} == {
        key: partition_of_key(key.encode(), 3) for key in keys
    }
    assert writer.written == 50
    assert [len(node.requests) for node in cluster.fakes.values()] == [1, 1], "one request to each leader"


def test_records_without_a_key_share_a_batch_and_then_move_on() -> None:
    cluster = FakeCluster([1, 1, 1])
    writer = writer_to(cluster)
    for _ in range(3):
        writer.add(record("a"))
        writer.add(record("b"))
        writer.flush()
    assert {partition: len(log) for partition, log in cluster.fakes[1].logs.items()} == {0: 2, 1: 2, 2: 2}


def test_a_full_batch_is_written_without_waiting_for_flush() -> None:
    cluster = FakeCluster([1])
    writer = writer_to(cluster)
    for _ in range(3):
        writer.add(record("x" * 300_000))
    assert len(cluster.fakes[1].logs[0]) == 2
    writer.flush()
    assert [len(each.value or b"") for each in cluster.fakes[1].logs[0]] == [300_000] * 3
    assert writer.offsets == {0: (0, 2)}


def test_an_explicit_partition_that_is_not_there() -> None:
    with pytest.raises(UserError, match="no partition 3; it has 1"):
        writer_to(FakeCluster([1])).add(record("a"), 3)


def test_follows_a_leader_that_moves() -> None:
    def elect(cluster: FakeCluster) -> None:
        cluster.leaders = [2]

    cluster = FakeCluster([1], elect)
    cluster.fakes[2] = FakeCluster([2]).fakes[2]
    cluster.fakes[1].refusals.append(NotLeaderOrFollowerError.code)
    writer = writer_to(cluster)
    writer.add(record("a"))
    writer.flush()
    assert [each.value for each in cluster.fakes[2].logs[0]] == [b"a"]
    assert writer.written == 1


def test_gives_up_when_no_leader_is_elected_in_time() -> None:
    patience = Patience()
    cluster = FakeCluster([1, -1])
    writer = writer_to(cluster, patience)
    writer.add(record("a"), 1)
    with pytest.raises(LeaderNotAvailableError, match="orders-1"):
        writer.flush()
    assert patience.now == pytest.approx(1.0)


def test_a_timeout_is_not_repeated_because_the_records_may_be_there() -> None:
    cluster = FakeCluster([1])
    cluster.fakes[1].refusals.append(RequestTimedOutError.code)
    writer = writer_to(cluster)
    writer.add(record("a"))
    with pytest.raises(RequestTimedOutError):
        writer.flush()
    assert len(cluster.fakes[1].requests) == 1


def test_a_batch_that_is_too_large_is_split_in_order() -> None:
    cluster = FakeCluster([1])
    cluster.fakes[1].largest_batch = 3
    writer = writer_to(cluster)
    for number in range(10):
        writer.add(record(str(number)))
    writer.flush()
    assert [each.value for each in cluster.fakes[1].logs[0]] == [str(number).encode() for number in range(10)]
    assert writer.offsets == {0: (0, 9)}


def test_a_single_record_that_is_too_large_is_refused_with_advice() -> None:
    cluster = FakeCluster([1])
    cluster.fakes[1].refusals.append(MessageTooLargeError.code)
    writer = writer_to(cluster)
    writer.add(record("a"))
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        writer.flush()


def test_without_acks_nothing_is_awaited() -> None:
    cluster = FakeCluster([1])
    writer = writer_to(cluster, acks=ACKS_NONE)
    writer.add(record("a"))
    writer.flush()
    assert writer.written == 1
    assert writer.offsets == {}
