from __future__ import annotations

import logging
import re
from collections import deque

import pytest

from braidlog.client.errors import (
    DeliveryTimeoutError,
)
from braidlog.core.protocol_errors import (
    InvalidRecordError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)
from support.producer_simulation import LOST_AFTER, TOPIC, ProducerSimulation


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    return made


def values(world: ProducerSimulation, partition: int = 0) -> list[bytes | None]:
    return world.logs[(TOPIC, partition)].values


def test_a_leader_that_moved_is_followed_at_once(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    world.leaders[0] = 2
    moved_at = world.loop.time()
    done: list[float] = []
    world.send(b"b", on_delivery=lambda metadata, error: done.append(world.loop.time()))
    world.run(1.0)
    assert values(world) == [b"a", b"b"]
    assert done[0] - moved_at < 0.1


def test_a_batch_too_large_for_the_broker_is_split(world: ProducerSimulation) -> None:
    world.logs[(TOPIC, 0)].largest = 250
    world.run(1.0)
    reported: list[int] = []
    deliveries = [
        world.send(b"%02d" % number + bytes(18), on_delivery=lambda metadata, error: reported.append(metadata.offset))
        for number in range(40)
    ]
    world.run(10.0)
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(40))
    assert reported == list(range(40))
    assert [value[:2] for value in values(world) if value] == [b"%02d" % number for number in range(40)]
    assert world.accumulator.pool.available == world.limits.memory
    assert world.response_handler.batches_split > 1
    assert world.producer_id_state.epoch == 0


def test_one_record_too_large_for_the_broker_fails_and_the_next_goes_on(world: ProducerSimulation) -> None:
    world.logs[(TOPIC, 0)].largest = 250
    large = world.send(bytes(400))
    world.run(1.0)
    small = world.send(b"a")
    world.run(5.0)
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        large.result(0)
    assert small.result(0).offset == 0
    # The sequence has no gap: what came after starts anew.
    assert world.producer_id_state.epoch == 1


def test_errors_of_records_reach_their_own_deliveries(world: ProducerSimulation) -> None:
    world.refusals[0] = deque([87])
    world.record_errors[0] = [(1, "no key, but the topic is compacted")]
    deliveries = [world.send(b"%d" % number) for number in range(3)]
    world.run(1.0)
    with pytest.raises(InvalidRecordError, match="no key"):
        deliveries[1].result(0)
    with pytest.raises(InvalidRecordError, match="other records of the same batch"):
        deliveries[0].result(0)


def test_an_error_that_lasts_fails_at_once(world: ProducerSimulation) -> None:
    world.refusals[0] = deque([29])
    delivery = world.send(b"a")
    world.run(1.0)
    assert isinstance(delivery.exception(0), TopicAuthorizationFailedError)
    assert len(world.requests) == 1


def test_retries_pause_longer_each_time(world: ProducerSimulation) -> None:
    world.refusals[0] = deque([19] * 6)
    world.send(b"a")
    world.run(20.0)
    assert len(world.requests) == 7
    assert values(world) == [b"a"]


def test_a_disk_that_refuses_is_logged_once_and_when_it_is_over(
    world: ProducerSimulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "braidlog.client")
    # KAFKA_STORAGE_ERROR, for some six seconds.
    world.refusals[0] = deque([56] * 9)
    world.send(b"a")
    world.run(20.0)
    assert values(world) == [b"a"]
    warning, information = [each for each in caplog.records if "failing" in each.message or "again" in each.message]
    assert warning.levelname == "WARNING"
    assert "producer: failing for" in warning.message
    assert f"partition 0 of topic {TOPIC}: the disk under it failed" in warning.message
    assert information.levelname == "INFO"
    assert re.search(f"works again after [5-9] s: partition 0 of topic {TOPIC}", information.message)


def test_a_leader_that_moves_is_not_logged(world: ProducerSimulation, caplog: pytest.LogCaptureFixture) -> None:
    # NOT_LEADER_OR_FOLLOWER twice, then a lost connection.
    world.refusals[0] = deque([6, 6])
    world.faults.append(LOST_AFTER)
    world.send(b"a")
    world.run(20.0)
    assert caplog.text == ""


def test_so_many_retries_and_no_more() -> None:
    world = ProducerSimulation(idempotent=False, acks=1, retries=2)
    world.learn()
    world.refusals[0] = deque([19] * 6)
    delivery = world.send(b"a")
    world.run(20.0)
    assert len(world.requests) == 3
    assert isinstance(delivery.exception(0), NotEnoughReplicasError)


def test_an_answer_after_the_end_is_ignored() -> None:
    world = ProducerSimulation(delivery_timeout_s=1.0)
    world.learn()
    world.run(0.5)
    world.send(b"a")
    world.run(1.0)
    world.nodes.open[1]._free_at = world.loop.time() + 5.0
    delivery = world.send(b"b")
    world.run(3.0)
    assert isinstance(delivery.exception(0), DeliveryTimeoutError)
    world.run(10.0)
    assert isinstance(delivery.exception(0), DeliveryTimeoutError)
    assert values(world) == [b"a", b"b"]


def test_a_duplicate_is_a_success(world: ProducerSimulation) -> None:
    world.send(b"a")
    world.run(1.0)
    world.faults.append(LOST_AFTER)
    deliveries = [world.send(b"%d" % number) for number in range(3)]
    world.run(5.0)
    assert values(world) == [b"a", b"0", b"1", b"2"]
    assert [delivery.result(0).offset for delivery in deliveries] == [1, 2, 3]
