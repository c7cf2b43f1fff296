"""A program that sends and reads by the real Producer and Consumer, while its broker is killed again and again."""

from __future__ import annotations

import asyncio

from braidlog.client import Consumer, Delivery, Producer, TopicPartition
from braidlog.client.admin import Admin, NewTopic
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS, Simulation

PARTITIONS = 2
ROUNDS = 4
RECORDS = 30


class Shop:
    """A program that sends and reads, in a thread of its own."""

    def __init__(self, simulation: Simulation) -> None:
        self.random = simulation.random
        self.sent: dict[TopicPartition, list[str]] = {}
        self.read: dict[TopicPartition, list[str]] = {}

    def open(self) -> None:
        with Admin(bootstrap_servers=SERVERS) as admin:
            admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).raise_for_errors()
        self.producer = Producer(bootstrap_servers=SERVERS, request_timeout_ms=3000, retry_backoff_ms=20)
        self.consumer = Consumer(bootstrap_servers=SERVERS, group_id="shop", auto_offset_reset="earliest")
        self.consumer.subscribe(["orders"])

    def send(self, count: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for _ in range(count):
            partition = TopicPartition("orders", self.random.randrange(PARTITIONS))
            values = self.sent.setdefault(partition, [])
            values.append(f"{partition} {len(values)}")
            deliveries.append(self.producer.send("orders", values[-1], partition=partition.partition))
        return deliveries

    def read_all(self, deliveries: list[Delivery]) -> None:
        for each in deliveries:
            each.result()
        while self.read != self.sent:
            records = self.consumer.poll(60.0)
            assert records, f"{self.read} was read of {self.sent}"
            for record in records:
                values = self.read.setdefault(TopicPartition(record.topic, record.partition), [])
                assert record.offset == len(values)
                values.append((record.value or b"").decode())

    def close(self) -> None:
        self.consumer.commit()
        with Admin(bootstrap_servers=SERVERS) as admin:
            committed = admin.list_group_offsets(["shop"])["shop"]
        assert {each: found.offset for each, found in committed.items()} == {
            partition: len(values) for partition, values in self.sent.items()
        }
        self.consumer.close()
        self.producer.flush()
        self.producer.close()


async def run_shop(simulation: Simulation) -> None:
    broker, program, shop = simulation.broker, SimulatedProgram(simulation, "shop"), Shop(simulation)
    await broker.start()
    await program.call(shop.open)
    for _ in range(ROUNDS):
        deliveries = await program.call(shop.send, RECORDS)
        await asyncio.sleep(simulation.random.random() * 0.02)
        broker.kill()
        await asyncio.sleep(simulation.random.random())
        await broker.start()
        await program.call(shop.read_all, deliveries)
    await program.call(shop.close)
    await broker.stop()
