"""Whatever goes wrong on the way: every record ends once, acknowledged ones are in the log once and in order."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from braidlog.client.errors import (
    DeliveryTimeoutError,
)
from braidlog.client.producer.delivery import Delivery
from support.producer_simulation import LOST_AFTER, LOST_BEFORE, TOPIC, ProducerSimulation


def value(number: int) -> bytes:
    return b"%06d" % number


def check_books(world: ProducerSimulation, sent: list[list[Delivery]]) -> None:
    for partition, deliveries in enumerate(sent):
        log = world.logs[(TOPIC, partition)].values
        assert len(set(log)) == len(log), "a record is there twice"
        offsets: list[int] = []
        for number, delivery in enumerate(deliveries):
            assert delivery.done()
            if delivery.exception() is None:
                offset = delivery.result().offset
                assert log[offset] == value(number)
                offsets.append(offset)
        assert offsets == sorted(offsets), "acknowledged records are out of order"


@given(
    seed=st.integers(0, 1 << 32),
    faults=st.sampled_from((0.0, 0.1, 0.3, 0.5)),
    batch_size=st.sampled_from((0, 100, 300, 16_384)),
    linger=st.sampled_from((0.0, 0.005)),
    codec=st.sampled_from((0, 1)),
    moves=st.booleans(),
    timeout=st.sampled_from((2.0, 120.0)),
    largest=st.sampled_from((1 << 30, 250)),
)
@hypothesis_settings(max_examples=60)
def test_every_record_ends_once_and_in_order(
    seed: int, faults: float, batch_size: int, linger: float, codec: int, moves: bool, timeout: float, largest: int
) -> None:
    world = ProducerSimulation(
        seed, batch_size=batch_size, linger_s=linger, codec=codec, delivery_timeout_s=timeout, memory=20_000
    )
    world.random_faults = faults
    for log in world.logs.values():
        log.largest = largest
    calls: dict[tuple[int, int], int] = {}
    sent: list[list[Delivery]] = [[], []]
    for number in range(60):
        for partition in (0, 1):
            place = (partition, number)
            calls[place] = 0

            def on_delivery(metadata: object, error: object, place: tuple[int, int] = place) -> None:
                calls[place] += 1

            sent[partition].append(world.send(value(number), partition, on_delivery=on_delivery))
        if world.random.random() < 0.3:
            world.run(world.random.uniform(0, 0.1))
        if moves and world.random.random() < 0.05:
            world.leaders[world.random.randrange(2)] = world.random.choice((1, 2))
    world.random_faults = 0.0
    world.run(300.0)
    check_books(world, sent)
    assert set(calls.values()) == {1}
    assert not world.accumulator.has_incomplete
    assert world.accumulator.pool.available == world.limits.memory
    assert world.accumulator.backlog == 0
    assert world.most_in_flight <= 5
    if timeout > 100:
        assert all(delivery.exception() is None for row in sent for delivery in row)


@pytest.mark.parametrize("fault", [LOST_BEFORE, LOST_AFTER])
def test_a_batch_that_is_sent_again_keeps_its_sequence(fault: str) -> None:
    world = ProducerSimulation()
    world.learn()
    world.faults.append(fault)
    deliveries = [world.send(value(0))]
    world.run(5.0)
    deliveries.append(world.send(value(1)))
    world.run(5.0)
    assert world.logs[(TOPIC, 0)].values == [value(0), value(1)]
    assert [delivery.result().offset for delivery in deliveries] == [0, 1]
    sequences = [row[0][1] for row in world.requests]
    assert sequences == ([0, 0, 1] if fault == LOST_AFTER else [0, 1])
    assert world.response_handler.batches_retried == 1


def test_what_follows_a_failed_batch_waits_for_it() -> None:
    world = ProducerSimulation(batch_size=0)
    world.learn()
    world.run(1.0)
    world.refusals[0] = deque([19, 19])  # NOT_ENOUGH_REPLICAS
    deliveries = [world.send(value(number)) for number in range(8)]
    world.run(10.0)
    assert world.logs[(TOPIC, 0)].values == [value(number) for number in range(8)]
    assert all(delivery.exception() is None for delivery in deliveries)


def test_one_request_in_flight_keeps_order_without_sequences() -> None:
    world = ProducerSimulation(batch_size=0, idempotent=False, acks=1, max_in_flight=1)
    world.learn()
    world.refusals[0] = deque([19, 19, 19])
    deliveries = [world.send(value(number)) for number in range(8)]
    world.run(20.0)
    assert world.logs[(TOPIC, 0)].values == [value(number) for number in range(8)]
    assert world.most_in_flight == 1
    assert all(delivery.exception() is None for delivery in deliveries)


def test_time_runs_out_while_a_broker_is_away_and_the_epoch_is_bumped() -> None:
    world = ProducerSimulation(delivery_timeout_s=3.0)
    world.learn()
    first = world.send(value(0))
    world.run(1.0)
    world.faults.append(LOST_BEFORE)
    second = world.send(value(1))
    world.unreachable.add(1)
    world.run(5.0)
    with pytest.raises(DeliveryTimeoutError, match=r"orders-0.*delivery\.timeout\.ms"):
        second.result(0)
    world.unreachable.clear()
    third = world.send(value(2))
    world.run(5.0)
    assert first.result(0).offset == 0
    assert third.result(0).offset == 1
    # Whether the second was written was in doubt, so the third is the first of a new epoch.
    assert world.producer_id_state.epoch == 1
    assert world.logs[(TOPIC, 0)].producers[7_001][0] == 1


def test_a_batch_in_doubt_that_was_written_leaves_the_epoch_alone() -> None:
    world = ProducerSimulation(delivery_timeout_s=3.0, batch_size=0)
    world.learn()
    world.send(value(0))
    world.run(1.0)
    # Two are sent; the first runs out of time, the response to the second shows that both were written.
    world.slowest = 0.001
    world.refusals[0] = deque()
    connection = world.nodes.open[1]
    connection._free_at = world.loop.time() + 3.5
    first = world.send(value(1))
    world.run(1.0)
    second = world.send(value(2))
    world.run(10.0)
    assert isinstance(first.exception(0), DeliveryTimeoutError)
    assert second.result(0).offset == 2
    assert world.producer_id_state.epoch == 0
    assert world.send(value(3)) is not None
    world.run(1.0)
    assert world.logs[(TOPIC, 0)].values == [value(number) for number in range(4)]


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    return made


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    # UNKNOWN_PRODUCER_ID, and the log start offset is known.
    world.refusals[0] = deque([59])
    world.logs[(TOPIC, 0)].producers.clear()
    delivery = world.send(b"b")
    world.run(2.0)
    assert delivery.result(0).offset == 1


def test_a_sequence_that_the_broker_misses_bumps_the_epoch(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    producer = next(iter(world.logs[(TOPIC, 0)].producers))
    world.logs[(TOPIC, 0)].producers[producer] = (0, 40, {})
    world.logs[(TOPIC, 0)].producers[producer] = (0, -1, {})
    delivery = world.send(b"b")
    world.run(2.0)
    assert delivery.result(0).offset == 1
    assert world.producer_id_state.epoch == 1


def test_epochs_that_are_used_up_need_a_new_id(world: ProducerSimulation) -> None:
    world.first_epoch = 0x7FFF
    world.logs[(TOPIC, 0)].largest = 250
    world.send(bytes(400))
    world.run(1.0)
    world.first_epoch = 0
    delivery = world.send(b"a")
    world.run(2.0)
    assert delivery.result(0).offset == 0
    assert world.ids_given == 2
    assert world.producer_id_state.epoch == 0
