from __future__ import annotations

import threading

import pytest

from braidlog.client.errors import (
    ConcurrentUseError,
)
from support.producer_simulation import TOPIC, ProducerSimulation


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    return made


def test_metadata_has_timestamps_and_sizes() -> None:
    world = ProducerSimulation()
    world.learn()
    delivery = world.send(b"four", timestamp_ms=1_000, key=b"k")
    world.run(1.0)
    metadata = delivery.result(0)
    assert (metadata.timestamp_ms, metadata.serialized_key_size, metadata.serialized_value_size) == (1_000, 1, 4)
    assert world.logs[(TOPIC, 0)].records[0].timestamp == 1_000


def test_a_callback_that_flushes_is_refused_instead_of_waiting_for_itself(world: ProducerSimulation) -> None:
    world.accumulator.guard.engine_thread = threading.get_ident()
    world.send(b"a")
    with pytest.raises(ConcurrentUseError, match="a delivery callback cannot flush"):
        world.incomplete_batches.wait(0.01)
