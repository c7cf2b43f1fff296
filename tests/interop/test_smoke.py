"""One round trip with each Python client: quick enough to run again in pure mode."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition

from support import confluent, kafka_python
from support.broker import Broker
from support.samples import Sample, plain_samples

SAMPLES = plain_samples(50)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_confluent(broker: Broker, topic: str, codec: str) -> None:
    sender = confluent.producer(broker.bootstrap, compression_type=codec, enable_idempotence=True)
    confluent.send(sender, topic, SAMPLES)
    assert confluent.as_samples(confluent.read_all(broker.bootstrap, topic)) == SAMPLES


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafka_python(broker: Broker, topic: str, codec: str) -> None:
    with kafka_python.producer(broker.bootstrap, codec) as sender:
        kafka_python.send(sender, topic, SAMPLES)
    with kafka_python.assigned(broker.bootstrap, topic) as consumer:
        assert kafka_python.as_samples(kafka_python.read(consumer, len(SAMPLES))) == SAMPLES


def test_an_old_message_format(broker: Broker, topic: str) -> None:
    with kafka_python.producer(broker.bootstrap, "gzip", api_version=(0, 9)) as sender:
        kafka_python.send(sender, topic, SAMPLES)
    read = confluent.read_all(broker.bootstrap, topic)
    assert [(m.key(), m.value()) for m in read] == [(s.key, s.value) for s in SAMPLES]


def test_aiokafka(broker: Broker, topic: str) -> None:
    async def scenario() -> list[Sample]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="zstd")
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await producer.start()
        await consumer.start()
        try:
            for sample in SAMPLES:
                await producer.send(topic, sample.value, sample.key, partition=0, timestamp_ms=sample.timestamp_ms)
            await producer.flush()
            consumer.assign([AioPartition(topic, 0)])
            async with asyncio.timeout(60):
                records = [await consumer.getone() for _ in SAMPLES]
            return [Sample(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        finally:
            await producer.stop()
            await consumer.stop()

    assert asyncio.run(scenario()) == SAMPLES


def test_topics_come_and_go(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)
    confluent.create_topic(broker.bootstrap, topic, partitions=3)
    assert sorted(admin.list_topics(topic, timeout=30).topics[topic].partitions) == [0, 1, 2]
    admin.delete_topics([topic])[topic].result(30)
