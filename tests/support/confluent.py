"""Short forms for confluent-kafka (librdkafka): send samples and wait, read a partition by assignment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from support.eventually import eventually
from support.samples import Sample

DEADLINE_S = 60.0


def producer(bootstrap: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **_dotted(settings)})


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    """Callbacks, and the level of the log, are named with an underscore."""
    return {
        key if key.endswith("_cb") or key == "log_level" else key.replace("_", "."): value
        for key, value in settings.items()
    }


def send(sender: Producer, topic: str, samples: Iterable[Sample], partition: int = 0) -> list[Message]:
    """Send all, wait for all; the delivery reports in order. A failed delivery is raised."""
    reports: list[Message] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            reports.append(message)

    for sample in samples:
        sender.produce(
            topic,
            key=sample.key,
            value=sample.value,
            headers=list(sample.headers) or None,
            timestamp=sample.timestamp_ms,
            partition=partition,
            on_delivery=delivered,
        )
        sender.poll(0)
    left = sender.flush(DEADLINE_S)
    if failures:
        raise KafkaException(failures[0])
    assert left == 0, f"{left} records were neither delivered nor refused"
    return reports


@contextmanager
def assigned(
    bootstrap: str, topic: str, offset: int = OFFSET_BEGINNING, partition: int = 0, **settings: Any
) -> Iterator[Consumer]:
    """A consumer that reads one partition from an offset, with no group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            **_dotted(settings),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int | None = None) -> list[Message]:
    """`count` messages, or all up to the end of the partition."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while count is None or len(messages) < count:
        message = consumer.poll(1.0)
        assert time.monotonic() < deadline, f"only {len(messages)} messages came"
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            if count is None:
                break
        else:
            raise KafkaException(error)
    return messages


def read_all(bootstrap: str, topic: str, partition: int = 0, **settings: Any) -> list[Message]:
    with assigned(bootstrap, topic, partition=partition, **settings) as consumer:
        return read(consumer)


def as_samples(messages: Sequence[Message]) -> list[Sample]:
    return [Sample(m.key(), m.value(), tuple(tuple(h) for h in m.headers() or ()), m.timestamp()[1]) for m in messages]


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(bootstrap: str, topic: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=_dotted(config))
    client = admin(bootstrap)  # a name for it: its answers come only while it lives
    client.create_topics([new])[topic].result(DEADLINE_S)
    eventually(lambda: topic in client.list_topics(timeout=DEADLINE_S).topics)
