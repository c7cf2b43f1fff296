"""Which batches are drained when, and how they end: expired, aborted, or split into smaller ones."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.errors import ClosedError, DeliveryTimeoutError, RecordTooLargeError
from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder
from braidlog.client.producer.accumulator.producer_batch import NEVER, ProducerBatch, notify_waiters
from braidlog.client.producer.delivery import Delivery
from braidlog.core.clock import ManualClock
from support.send_path_harness import SendPathHarness


class AccumulatorHarness(SendPathHarness):
    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock()
        super().__init__(clock=self.clock, **limits)
        self.metadata_wait.appear("t")

    def send(self, value: bytes = b"", partition: int = 0) -> Delivery:
        return self.send_path.send("t", value, partition=partition)

    def drain(self) -> list[ProducerBatch]:
        """What broker 1 gets."""
        return self.accumulator.drain(self.clock.monotonic(), {1: 5}).requests.get(1, [])

    @property
    def look_at(self) -> float:
        return self.accumulator.drain(self.clock.monotonic(), {1: 5}).look_at


def test_a_batch_lingers() -> None:
    scene = AccumulatorHarness(linger_s=0.5)
    scene.send()
    assert scene.look_at == 0.5
    scene.clock.advance(0.5)
    assert [batch.count for batch in scene.drain()] == [1]
    assert scene.look_at == NEVER


def test_nothing_lingers_during_a_flush() -> None:
    scene = AccumulatorHarness(linger_s=0.5)
    scene.send()
    scene.accumulator.begin_flush()
    scene.accumulator.begin_flush()
    scene.accumulator.end_flush()
    assert len(scene.drain()) == 1
    scene.accumulator.end_flush()
    scene.send()
    assert scene.drain() == []


def test_a_flush_wakes_the_engine_if_there_is_something_to_send() -> None:
    scene = AccumulatorHarness()
    scene.accumulator.begin_flush()
    assert scene.calls == 0
    scene.send()
    scene.accumulator.wakeup_received()
    scene.accumulator.begin_flush()
    assert scene.calls == 2


def test_a_request_has_one_batch_a_partition_and_a_largest_size() -> None:
    scene = AccumulatorHarness(batch_size=100, max_request=300)
    for _ in range(2):
        for partition in range(4):
            scene.send(bytes(60), partition)
    drained = [[batch.partition for batch in scene.drain()] for _ in range(4)]
    assert drained[:2] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    scene = AccumulatorHarness(batch_size=100, max_request=200)
    for _ in range(2):
        for partition in range(4):
            scene.send(bytes(60), partition)
    drained = [[batch.partition for batch in scene.drain()] for _ in range(4)]
    assert drained == [[0, 1], [2, 3], [0, 1], [2, 3]], "the partitions take turns"


def test_missing_connections_and_leaders_are_reported() -> None:
    scene = AccumulatorHarness()
    scene.send()
    assert scene.accumulator.drain(0.0, {}).unconnected == [1]
    assert scene.accumulator.drain(0.0, {1: 0}).unconnected == []
    scene.accumulator.mark_leaderless("t")
    drained = scene.accumulator.drain(0.0, {1: 5})
    assert (drained.leaderless, drained.requests) == (["t"], {})


def test_a_batch_that_runs_out_of_time_fails() -> None:
    scene = AccumulatorHarness(delivery_timeout_s=10.0)
    first = scene.send()
    scene.drain()
    scene.clock.advance(5.0)
    second = scene.send(partition=1)
    assert scene.accumulator.next_expiry() == 10.0
    assert scene.accumulator.expire_batches(9.9) == ([], [])
    expired, waiters = scene.accumulator.expire_batches(15.0)
    notify_waiters(waiters)
    assert len(expired) == 2
    with pytest.raises(DeliveryTimeoutError, match=r"t-0 were not acknowledged.*sent 1 times; the broker may have it"):
        first.result(0)
    with pytest.raises(DeliveryTimeoutError, match=r"t-1 were not acknowledged.*it was never sent"):
        second.result(0)
    assert scene.accumulator.next_expiry() == NEVER
    assert scene.drain() == []


def test_an_abort_of_what_was_not_sent_spares_the_rest() -> None:
    scene = AccumulatorHarness()
    sent = scene.send()
    scene.drain()
    unsent = scene.send()
    failed, waiters = scene.accumulator.abort_batches(ClosedError("aborted"), unsent_only=True)
    notify_waiters(waiters)
    assert len(failed) == 1
    assert isinstance(unsent.exception(0), ClosedError)
    assert not sent.done()
    assert scene.accumulator.backlog == 0
    scene.accumulator.abort_batches(ClosedError("closed"), unsent_only=False)
    assert isinstance(sent.exception(0), ClosedError)
    assert scene.accumulator.pool.available == scene.accumulator.limits.memory


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_split_batch_keeps_its_order_its_memory_and_its_deliveries(count: int) -> None:
    scene = AccumulatorHarness()
    values = [b"%02d" % number * 20 for number in range(count)]
    deliveries = [scene.send(value) for value in values]
    (whole,) = scene.drain()
    BatchEncoder(0, None).encode(whole, scene.accumulator.pool)
    reserved = scene.accumulator.pool.available
    later = scene.send(b"later")
    parts = scene.accumulator.split_and_reenqueue(whole)
    assert parts >= 2
    assert sum(batch.count for batch in scene.accumulator.incomplete.values()) == count + 1
    assert [record.value for record in scene.records()[0]] == [*values, b"later"]
    assert all(delivery.done() for delivery in [*deliveries, later])
    assert scene.accumulator.pool.available == scene.accumulator.limits.memory > reserved
    assert scene.accumulator.backlog == 0


def test_a_record_that_can_never_be_sent_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match=r"larger than max\.request\.size \(1000\)"):
        AccumulatorHarness(max_request=1_000).send(bytes(1_000))
    with pytest.raises(RecordTooLargeError, match=r"does not fit buffer\.memory \(500\)"):
        AccumulatorHarness(max_request=1_000, memory=500).send(bytes(600))
