"""Which batches are drained when, and how they end: expired, aborted, or split into smaller ones."""

from __future__ import annotations

from braidlog.client.producer.accumulator.producer_batch import NEVER
from support.accumulator_harness import AccumulatorHarness


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
