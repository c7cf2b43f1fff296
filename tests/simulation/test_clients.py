"""The real Producer and Consumer against a simulated broker that is killed while they work.

Every record is acknowledged in the end, stands in its partition once, in the order sent, and a group reads it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from braidlog.client import Consumer, Delivery, Producer, TopicPartition
from braidlog.client.admin import Admin, NewTopic
from braidlog.client.runtime import clients_in
from braidlog.testing.simulated.client_runtime import client_runtime
from braidlog.testing.simulated.simulation import Simulation

SERVERS = "simulated:9092"
PARTITIONS = 2
ROUNDS = 4
RECORDS = 30


class World:
    """Programs act while the loop rests; `until` runs it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.sent: dict[TopicPartition, list[str]] = {}
        self.read: dict[TopicPartition, list[str]] = {}

    def until(self, is_over: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(300.0):
                # Deliveries are made for threads: they have no event.
                while not is_over():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        self.simulation.run(wait())

    def restart(self) -> None:
        self.simulation.broker.kill()
        self.simulation.run(asyncio.sleep(self.simulation.random.random()))
        self.simulation.run(self.simulation.broker.start())

    def send(self, producer: Producer, count: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for _ in range(count):
            partition = TopicPartition("orders", self.simulation.random.randrange(PARTITIONS))
            values = self.sent.setdefault(partition, [])
            values.append(f"{partition} {len(values)}")
            deliveries.append(producer.send("orders", values[-1], partition=partition.partition))
        return deliveries

    def poll(self, consumer: Consumer) -> bool:
        """Whether all that was sent is read."""
        for record in consumer.poll(0):
            partition = TopicPartition(record.topic, record.partition)
            values = self.read.setdefault(partition, [])
            assert record.offset == len(values)
            values.append((record.value or b"").decode())
        self.simulation.run(asyncio.sleep(0.02))
        return self.read == self.sent


def work(simulation: Simulation) -> None:
    world = World(simulation)
    simulation.run(simulation.broker.start())
    with Admin(bootstrap_servers=SERVERS) as admin:
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).raise_for_errors()
    producer = Producer(bootstrap_servers=SERVERS, request_timeout_ms=3000, retry_backoff_ms=20)
    consumer = Consumer(bootstrap_servers=SERVERS, group_id="shop", auto_offset_reset="earliest")
    consumer.subscribe(["orders"])
    for _ in range(ROUNDS):
        deliveries = world.send(producer, RECORDS)
        simulation.run(asyncio.sleep(simulation.random.random() * 0.02))
        world.restart()
        world.until(lambda deliveries=deliveries: all(each.done() for each in deliveries))  # type: ignore[misc]
        for each in deliveries:
            each.result()
        for _ in range(3000):
            if world.poll(consumer):
                break
        assert world.read == world.sent
    consumer.commit()
    with Admin(bootstrap_servers=SERVERS) as admin:
        committed = admin.list_group_offsets(["shop"])["shop"]
    assert {each: found.offset for each, found in committed.items()} == {
        partition: len(values) for partition, values in world.sent.items()
    }
    consumer.close()
    producer.close(0)
    simulation.run(simulation.broker.stop())


@pytest.mark.parametrize("seed", range(10))
def test_records_survive_a_broker_that_is_killed(seed: int) -> None:
    with Simulation(seed) as simulation, clients_in(client_runtime(simulation)):
        work(simulation)
        assert simulation.errors == []
