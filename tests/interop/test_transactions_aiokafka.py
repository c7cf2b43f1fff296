"""aiokafka in transactions: what readers see, fencing, timeouts, and offsets within."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from support import confluent
from support.broker import Broker

DEADLINE_S = 30.0


@asynccontextmanager
async def transactor(broker: Broker, transactional_id: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=transactional_id, retry_backoff_ms=20, **settings
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def read(broker: Broker, topic: str, count: int, level: str = "read_committed") -> list[bytes | None]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level=level)
    await consumer.start()
    try:
        here = TopicPartition(topic, 0)
        consumer.assign([here])
        consumer.seek(here, 0)
        async with asyncio.timeout(DEADLINE_S):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


def test_readers_see_what_was_committed(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)

    async def scenario() -> None:
        async with transactor(quick_broker, topic) as producer:
            for number in range(6):
                await producer.begin_transaction()
                for sign in b"ab":
                    await producer.send_and_wait(topic, b"%d%c" % (number, sign), partition=0)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
            async with producer.transaction():
                await producer.send_and_wait(topic, b"end", partition=0)
        kept = [b"0a", b"0b", b"2a", b"2b", b"4a", b"4b", b"end"]
        assert await read(quick_broker, topic, len(kept)) == kept
        everything = [b"%d%c" % (number, sign) for number in range(6) for sign in b"ab"] + [b"end"]
        assert await read(quick_broker, topic, len(everything), "read_uncommitted") == everything

    asyncio.run(scenario())


def test_a_zombie_is_fenced(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)

    async def scenario() -> None:
        async with transactor(quick_broker, topic) as zombie:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"zombie", partition=0)
            async with transactor(quick_broker, topic) as heir:
                with pytest.raises(ProducerFenced):
                    await zombie.commit_transaction()
                async with heir.transaction():
                    await heir.send_and_wait(topic, b"heir", partition=0)
        assert await read(quick_broker, topic, 1) == [b"heir"]

    asyncio.run(scenario())


def test_the_coordinator_aborts_what_takes_too_long(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)

    async def scenario() -> None:
        async with transactor(quick_broker, topic, transaction_timeout_ms=5000) as slow:
            await slow.begin_transaction()
            await slow.send_and_wait(topic, b"late", partition=0)
            async with AIOKafkaProducer(bootstrap_servers=quick_broker.bootstrap) as plain:
                await plain.send_and_wait(topic, b"after", partition=0)
            assert await read(quick_broker, topic, 1) == [b"after"]
            with pytest.raises(KafkaError):
                await slow.commit_transaction()

    asyncio.run(scenario())


def test_consume_transform_produce(quick_broker: Broker, topic: str) -> None:
    """Offsets are sent with the group's name alone, as clients did before KIP-447."""
    source, sink, group = f"{topic}-in", f"{topic}-out", f"{topic}-group"
    confluent.create_topic(quick_broker.bootstrap, source)
    confluent.create_topic(quick_broker.bootstrap, sink)
    here = TopicPartition(source, 0)

    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=quick_broker.bootstrap) as plain:
            for number in range(30):
                await plain.send_and_wait(source, b"%d" % number, partition=0)
        async with transactor(quick_broker, topic) as producer:
            for attempt in range(6):
                consumer = AIOKafkaConsumer(
                    source,
                    bootstrap_servers=quick_broker.bootstrap,
                    group_id=group,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    isolation_level="read_committed",
                )
                await consumer.start()
                async with asyncio.timeout(DEADLINE_S):
                    records = [await consumer.getone() for _ in range(10)]
                await producer.begin_transaction()
                for record in records:
                    await producer.send_and_wait(sink, b"<%s>" % record.value, partition=0)
                await producer.send_offsets_to_transaction({here: records[-1].offset + 1}, group)
                # Every other attempt fails: its records must be taken again by the next one.
                await (producer.commit_transaction() if attempt % 2 else producer.abort_transaction())
                await consumer.stop()
        assert await read(quick_broker, sink, 30) == [b"<%d>" % number for number in range(30)]

    asyncio.run(scenario())
