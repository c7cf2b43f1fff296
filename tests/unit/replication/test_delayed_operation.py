from __future__ import annotations

from braidlog.replication.partition import Partition
from braidlog.replication.topic_metrics import TopicMetrics
from support.partitions import Waiter


def test_a_waiter_is_woken_once_over_all_its_partitions(partition: Partition) -> None:
    other = Partition("orders", 1, b"i" * 16, 1, TopicMetrics())
    waiter = Waiter(100)
    waiter.watch(partition)
    waiter.watch(other)
    waiter.grown(60)
    assert waiter.wakes == 0
    waiter.grown(60)
    waiter.grown(60)
    assert waiter.wakes == 1
    assert partition.readers == other.readers == []


def test_a_cancelled_waiter_is_never_woken(partition: Partition) -> None:
    waiter = Waiter(1)
    waiter.watch(partition)
    waiter.cancel()
    partition.wake_readers()
    waiter.wake()
    assert waiter.wakes == 0
