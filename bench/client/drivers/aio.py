"""aiokafka: Python on asyncio's own loop."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.client import task as shared
from bench.client.task import BATCH, Stopwatch, Task


def produce(task: Task, watch: Stopwatch) -> None:
    asyncio.run(_produce(task, watch))


async def _produce(task: Task, watch: Stopwatch) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        enable_idempotence=True,
        max_batch_size=shared.BATCH_BYTES,
        linger_ms=shared.LINGER_MS,
    )
    await producer.start()
    payloads = task.payloads()
    for payload in payloads[: shared.WARM_RECORDS]:
        await producer.send(task.topic, payload)
    await producer.flush()
    topic, sent, most = task.topic, 0, len(payloads)
    watch.start()
    while sent < task.count:
        chunk = min(most, task.count - sent)
        for payload in payloads[:chunk]:
            await producer.send(topic, payload)
        sent += chunk
    await producer.flush()
    watch.stop(sent)
    await producer.stop()


def consume(task: Task, watch: Stopwatch) -> None:
    asyncio.run(_consume(task, watch))


async def _consume(task: Task, watch: Stopwatch) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        check_crcs=True,
        fetch_min_bytes=1,
        fetch_max_wait_ms=shared.FETCH_WAIT_MS,
        fetch_max_bytes=shared.FETCH_MAX_BYTES,
        max_partition_fetch_bytes=shared.PARTITION_FETCH_BYTES,
        max_poll_records=shared.POLL_RECORDS,
    )
    consumer.assign([TopicPartition(task.topic, partition) for partition in range(task.partitions)])
    await consumer.start()
    got = size = 0
    await consumer.getone()
    watch.start()
    if task.mode == BATCH:
        while got < task.count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    size += len(record.value)
                got += len(records)
    else:
        while got < task.count:
            size += len((await consumer.getone()).value)
            got += 1
    watch.stop(got)
    assert size == got * task.size
    await consumer.stop()
