"""confluent-kafka: Python over librdkafka."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.client import task as shared
from bench.client.task import BATCH, Stopwatch, Task

_CHUNK = 1000


def produce(task: Task, watch: Stopwatch) -> None:
    producer = Producer({
        "bootstrap.servers": task.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "batch.size": shared.BATCH_BYTES,
        "batch.num.messages": 1_000_000,
        "linger.ms": shared.LINGER_MS,
        "queue.buffering.max.kbytes": shared.BUFFER_BYTES // 1024,
        "queue.buffering.max.messages": 10_000_000,
    })  # fmt: skip
    payloads = task.payloads()
    for payload in payloads[: shared.WARM_RECORDS]:
        producer.produce(task.topic, payload)
    producer.flush()
    watch.start()
    if task.mode == BATCH:
        _send_batches(producer, task, payloads)
    else:
        _send_each(producer, task, payloads)
    left = producer.flush()
    watch.stop(task.count)
    assert left == 0


def _send_each(producer: Producer, task: Task, payloads: list[bytes]) -> None:
    topic, sent, most = task.topic, 0, len(payloads)
    while sent < task.count:
        for payload in payloads[: min(most, task.count - sent)]:
            while True:
                try:
                    producer.produce(topic, payload)
                    break
                except BufferError:
                    producer.poll(0.01)
            sent += 1
        # Without delivery reports there is little to serve; a program does it now and then.
        producer.poll(0)


def _send_batches(producer: Producer, task: Task, payloads: list[bytes]) -> None:
    sent = 0
    while sent < task.count:
        # What a program would do with its values: one dict a record.
        messages = [{"value": payload} for payload in payloads[: min(_CHUNK, task.count - sent)]]
        while messages:
            taken = 0
            with suppress(BufferError):
                taken = producer.produce_batch(task.topic, messages)
            sent += taken
            messages = messages[taken:]
            producer.poll(0.01 if messages else 0)


def consume(task: Task, watch: Stopwatch) -> None:
    consumer = Consumer({
        "bootstrap.servers": task.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "check.crcs": True,
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": shared.FETCH_WAIT_MS,
        "fetch.max.bytes": shared.FETCH_MAX_BYTES,
        "max.partition.fetch.bytes": shared.PARTITION_FETCH_BYTES,
    })  # fmt: skip
    consumer.assign([TopicPartition(task.topic, partition, 0) for partition in range(task.partitions)])
    while (message := consumer.poll(1.0)) is None:
        pass
    assert message.error() is None
    watch.start()
    got = _read_batches(consumer, task) if task.mode == BATCH else _read_each(consumer, task)
    watch.stop(got)
    consumer.close()


def _read_each(consumer: Consumer, task: Task) -> int:
    got = size = 0
    while got < task.count:
        message = consumer.poll(1.0)
        if message is not None:
            size += len(message.value())
            got += 1
    assert size == got * task.size
    return got


def _read_batches(consumer: Consumer, task: Task) -> int:
    got = size = 0
    while got < task.count:
        messages = consumer.consume(shared.POLL_RECORDS, 1.0)
        for message in messages:
            size += len(message.value())
        got += len(messages)
    assert size == got * task.size
    return got
