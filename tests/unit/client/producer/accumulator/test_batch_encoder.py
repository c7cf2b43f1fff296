from __future__ import annotations

import pytest

from braidlog.wire.records.reading import read_records
from support.producer_simulation import TOPIC, ProducerSimulation


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    return made


def values(world: ProducerSimulation, partition: int = 0) -> list[bytes | None]:
    return world.logs[(TOPIC, partition)].values


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_are_compressed_and_can_be_split_again(codec: int) -> None:
    world = ProducerSimulation(codec=codec)
    world.learn()
    world.logs[(TOPIC, 0)].largest = 200
    world.run(1.0)
    sent = [world.random.randbytes(30) for _ in range(30)]
    deliveries = [world.send(value) for value in sent]
    world.run(20.0)
    assert values(world) == sent
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(30))


def test_encoded_bytes_are_what_brokers_read(world: ProducerSimulation) -> None:
    world.send(b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=5)
    world.run(1.0)
    (record,) = world.logs[(TOPIC, 0)].records
    assert (record.key, record.value, record.headers, record.timestamp) == (b"k", b"v", (("h", b"1"), ("n", None)), 5)
    assert read_records(b"") == []
