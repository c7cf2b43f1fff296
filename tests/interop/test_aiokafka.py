"""aiokafka: every codec, idempotence, assignment, seeks and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError, TopicAlreadyExistsError

from support.broker import Broker
from support.samples import BASE_TIMESTAMP_MS, CODECS, Sample, odd_samples, plain_samples

DEADLINE_S = 60.0


@asynccontextmanager
async def producing(broker: Broker, codec: str = "none", **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if codec == "none" else codec,
        **{"linger_ms": 5, **settings},
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(producer: AIOKafkaProducer, topic: str, samples: list[Sample]) -> list[int]:
    futures = [
        await producer.send(
            topic,
            sample.value,
            sample.key,
            partition=0,
            timestamp_ms=sample.timestamp_ms,
            headers=list(sample.headers),
        )
        for sample in samples
    ]
    async with asyncio.timeout(DEADLINE_S):
        reports = await asyncio.gather(*futures)
    return [report.offset for report in reports if report is not None]


@asynccontextmanager
async def assigned(broker: Broker, topic: str, offset: int = 0, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **{"auto_offset_reset": "none", **settings})
    await consumer.start()
    try:
        here = TopicPartition(topic, 0)
        consumer.assign([here])
        consumer.seek(here, offset)
        yield consumer
    finally:
        await consumer.stop()


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(broker: Broker, topic: str, codec: str) -> None:
    samples = [s for s in odd_samples() if (s.key, s.value) != (None, None)] + plain_samples(300)

    async def scenario() -> None:
        async with producing(broker, codec) as producer:
            assert await send(producer, topic, samples) == list(range(len(samples)))
        async with assigned(broker, topic) as consumer:
            records = await read(consumer, len(samples))
        assert [Sample(r.key, r.value, tuple(r.headers), r.timestamp) for r in records] == samples

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "settings",
    [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable_idempotence": True, "max_batch_size": 500}],
    ids=str,
)
def test_acks_and_idempotence(broker: Broker, topic: str, settings: dict[str, Any]) -> None:
    samples = plain_samples(200)

    async def scenario() -> None:
        async with producing(broker, **settings) as producer:
            await send(producer, topic, samples)
        async with assigned(broker, topic, isolation_level="read_committed") as consumer:
            records = await read(consumer, len(samples))
        assert [(r.offset, r.value) for r in records] == [(n, s.value) for n, s in enumerate(samples)]

    asyncio.run(scenario())


def test_large_records_and_one_too_large(broker: Broker, topic: str) -> None:
    value = bytes(range(256)) * 3900

    async def scenario() -> None:
        async with producing(broker, max_request_size=3_000_000) as producer:
            await send(producer, topic, [Sample(None, value), Sample(None, value)])
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 1_100_000, partition=0)
        async with assigned(broker, topic, max_partition_fetch_bytes=2000) as consumer:
            assert [r.value for r in await read(consumer, 2)] == [value, value]

    asyncio.run(scenario())


def test_positions_times_and_seeks(broker: Broker, topic: str) -> None:
    here = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with producing(broker, max_batch_size=700) as producer:
            await send(producer, topic, plain_samples(100))
        async with assigned(broker, topic, 40) as consumer:
            assert (await read(consumer, 1))[0].offset == 40
            assert await consumer.beginning_offsets([here]) == {here: 0}
            assert await consumer.end_offsets([here]) == {here: 100}
            found = (await consumer.offsets_for_times({here: BASE_TIMESTAMP_MS + 50}))[here]
            assert (found.offset, found.timestamp) == (50, BASE_TIMESTAMP_MS + 50)
            consumer.seek(here, 91)
            assert [r.offset for r in await read(consumer, 9)] == list(range(91, 100))
            await consumer.seek_to_beginning(here)
            assert (await read(consumer, 1))[0].offset == 0
        async with assigned(broker, topic, 5000) as consumer:
            with pytest.raises(OffsetOutOfRangeError):
                await read(consumer, 1)

    asyncio.run(scenario())


def test_a_waiting_consumer_gets_what_arrives(broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with producing(broker) as producer:
            await send(producer, topic, plain_samples(1))
            async with assigned(broker, topic, fetch_max_wait_ms=35_000) as consumer:
                await read(consumer, 1)
                waiting = asyncio.create_task(read(consumer, 1), name="waiting reader")
                started = asyncio.get_running_loop().time()
                await producer.send_and_wait(topic, b"now", partition=0)
                assert (await waiting)[0].value == b"now"
                assert asyncio.get_running_loop().time() - started < 30

    asyncio.run(scenario())


def test_admin(broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            new = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "9999999"})
            await admin.create_topics([new])
            again = await admin.create_topics([new])
            assert again.topic_errors[0][1] == TopicAlreadyExistsError.errno
            described = (await admin.describe_topics([topic]))[0]
            assert len(described["partitions"]) == 3
            answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            values = {entry[0]: entry[1] for entry in answers[0].resources[0][4]}
            assert values["retention.ms"] == "9999999"
            assert values["cleanup.policy"] == "delete"
            await admin.delete_topics([topic])
        finally:
            await admin.close()

    asyncio.run(scenario())
