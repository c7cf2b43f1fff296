"""Sends from an event loop's thread that cannot be appended at once: deferred, admitted in order, or failed."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.errors import BufferFullError, ClosedError
from braidlog.client.producer.accumulator.producer_batch import NEVER, notify_waiters
from braidlog.client.producer.delivery import Delivery
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from support.send_path_harness import SendPathHarness


class LoopHarness(SendPathHarness):
    """A send path in a thread that runs an event loop, on a clock that tests move."""

    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock()
        super().__init__(clock=self.clock, in_loop=True, **{"max_block_s": 5.0, **limits})
        self.pending = self.accumulator.pending_sends

    def send(self, value: bytes, topic: str = "t", partition: int | None = 0) -> Delivery:
        return self.send_path.send(topic, value, partition=partition)

    def admit(self) -> list[str]:
        """The topics that metadata has to be asked for."""
        admitted = self.pending.admit(self.clock.monotonic())
        notify_waiters(admitted.to_notify)
        return admitted.unknown_topics

    def values(self) -> list[bytes | None]:
        return [record.value for records in self.records().values() for record in records]


def test_a_send_waits_for_its_topic_and_wakes_the_engine() -> None:
    scene = LoopHarness()
    delivery = scene.send(b"1")
    assert (scene.pending.count, scene.calls) == (1, 1)
    assert not delivery.done()
    assert scene.admit() == ["t"]
    # Metadata has its own deadline, later than this: looking again by time would go on without a pause until then.
    assert scene.pending.admit(0.0).look_at == NEVER
    assert scene.pending.admit(9.0).look_at == NEVER
    assert not delivery.done()
    scene.metadata_wait.appear("t")
    assert scene.admit() == []
    assert scene.pending.count == 0
    assert scene.pending.admit(0.0).look_at == NEVER
    assert scene.values() == [b"1"]
    assert delivery.result(0).partition == 0


def test_a_send_whose_time_is_over_before_metadata_has_failed_is_not_looked_at_all_the_time() -> None:
    scene = LoopHarness()
    scene.send(b"1")
    for late in (5.0, 5.05):
        assert scene.pending.admit(late).look_at == NEVER
    notify_waiters(scene.pending.fail("t", UnknownTopicOrPartitionError("gone")))
    assert scene.pending.count == 0


def test_later_sends_do_not_overtake_it() -> None:
    scene = LoopHarness()
    scene.metadata_wait.appear("known")
    scene.send(b"1")
    scene.send(b"2")
    scene.send(b"3", "known")
    assert scene.pending.count == 3
    scene.admit()
    assert scene.pending.count == 2, "each topic has a queue of its own"
    scene.metadata_wait.appear("t")
    scene.admit()
    scene.send(b"4")
    assert scene.pending.count == 0
    assert sorted(scene.values()) == [b"1", b"2", b"3", b"4"]


def test_memory_that_does_not_get_free_fails_it() -> None:
    scene = LoopHarness(memory=100, batch_size=100)
    scene.metadata_wait.appear("t")
    scene.send(b"x" * 50)
    late = scene.send(b"y" * 50, partition=1)
    assert scene.pending.admit(0.0).look_at == 5.0
    assert len(scene.accumulator.pool.waiters) == 1
    scene.clock.advance(5.0)
    scene.admit()
    with pytest.raises(BufferFullError, match=r"max\.block\.ms \(5 s\).*are the brokers reachable"):
        late.result(0)
    assert scene.pending.count == 0
    assert len(scene.accumulator.pool.waiters) == 0
    assert scene.values() == [b"x" * 50]
    assert scene.accumulator.pool.available == 100


def test_memory_that_gets_free_admits_it() -> None:
    scene = LoopHarness(memory=100, batch_size=100)
    scene.metadata_wait.appear("t")
    scene.send(b"x" * 50)
    scene.send(b"y" * 50, partition=1)
    scene.admit()
    assert scene.values() == [b"x" * 50]
    scene.admit()
    assert scene.values() == [b"y" * 50]
    assert scene.accumulator.pool.available == 100


def test_a_topic_that_does_not_appear_fails_its_sends_only() -> None:
    scene = LoopHarness()
    gone, other = scene.send(b"1", "gone"), scene.send(b"2", "other")
    notify_waiters(scene.pending.fail("gone", UnknownTopicOrPartitionError("no such topic")))
    assert isinstance(gone.exception(0), UnknownTopicOrPartitionError)
    assert not other.done()
    assert scene.pending.count == 1
    assert scene.pending.fail("gone", ClosedError("closed")) == []
    notify_waiters(scene.pending.fail_all(ClosedError("closed")))
    assert isinstance(other.exception(0), ClosedError)
    assert scene.pending.count == 0
    assert not scene.accumulator.has_incomplete


def test_a_partition_that_does_not_appear_fails_its_sends_only() -> None:
    scene = LoopHarness()
    missing, other = scene.send(b"1", partition=7), scene.send(b"2", partition=0)
    scene.metadata_wait.appear("t")
    assert scene.admit() == ["t"]
    assert scene.pending.first_partition("t") == 7
    notify_waiters(scene.pending.fail("t", UnknownTopicOrPartitionError("no such partition"), 7))
    assert isinstance(missing.exception(0), UnknownTopicOrPartitionError)
    assert scene.admit() == []
    assert scene.values() == [b"2"]
    assert other.result(0).partition == 0
    assert scene.pending.first_partition("t") == -1


def test_a_callback_follows_its_record_into_the_batch() -> None:
    scene = LoopHarness()
    reported: list[object] = []
    scene.send_path.send("t", b"", partition=2, on_delivery=lambda metadata, error: reported.append((metadata, error)))
    scene.metadata_wait.appear("t")
    scene.admit()
    assert reported == []
    scene.records()
    ((metadata, error),) = reported  # type: ignore[misc]
    assert error is None
    assert metadata.partition == 2


def test_a_partitioner_is_asked_once_the_topic_is_known() -> None:
    class Last:
        def partition(self, topic: str, key: bytes | None, value: bytes | None, view: Any) -> int:
            return len(view.partitions) - 1

    scene = LoopHarness()
    scene.accumulator.partitioner = Last()
    scene.send(b"1", partition=None)
    scene.metadata_wait.appear("t")
    scene.admit()
    assert list(scene.records()) == [3]


def test_a_closed_producer_defers_nothing() -> None:
    scene = LoopHarness()
    scene.accumulator.refuse(ClosedError("closed"))
    with pytest.raises(ClosedError):
        scene.send(b"1")
    assert scene.pending.count == 0
