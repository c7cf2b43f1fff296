from __future__ import annotations

import pytest

from braidlog.client.errors import DeliveryTimeoutError, RecordTooLargeError
from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder
from braidlog.client.producer.accumulator.producer_batch import NEVER, notify_waiters
from support.accumulator_harness import AccumulatorHarness


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
