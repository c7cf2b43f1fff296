from __future__ import annotations

import pytest

from support.producer_simulation import TOPIC, ProducerSimulation


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    return made


def values(world: ProducerSimulation, partition: int = 0) -> list[bytes | None]:
    return world.logs[(TOPIC, partition)].values


def test_all_ready_partitions_of_a_broker_share_a_request(world: ProducerSimulation) -> None:
    world.run(1.0)
    world.send(b"a", 0)
    world.send(b"b", 1)
    world.run(1.0)
    assert world.requests == [[(0, 0, 1), (1, 0, 1)]]


def test_a_partition_has_one_batch_in_a_request() -> None:
    world = ProducerSimulation(batch_size=0)
    world.learn()
    for number in range(4):
        world.send(b"%d" % number)
    world.run(1.0)
    assert [len(request) for request in world.requests] == [1, 1, 1, 1]


def test_a_request_has_at_most_the_bytes_allowed() -> None:
    world = ProducerSimulation(max_request=400)
    world.learn()
    world.send(bytes(250), 0)
    world.send(bytes(250), 1)
    world.run(1.0)
    assert [len(request) for request in world.requests] == [1, 1]


def test_acks_0_asks_for_no_answer() -> None:
    world = ProducerSimulation(acks=0, idempotent=False)
    world.learn()
    delivery = world.send(b"a")
    world.run(1.0)
    assert delivery.result(0).offset == -1
    assert values(world) == [b"a"]
    assert not world.nodes.open[1]._waiting
