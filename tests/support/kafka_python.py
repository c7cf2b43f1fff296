"""Short forms for kafka-python: send samples and wait, read a partition by assignment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.codec import has_lz4, has_snappy, has_zstd

from support.samples import Sample

DEADLINE_S = 60.0


def missing_codec(codec: str) -> str | None:
    """Why kafka-python cannot compress so here (it takes its codecs from other packages)."""
    present = {"snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}.get(codec, lambda: True)
    return None if present() else f"kafka-python has no {codec} here (pip install 'kafka-python[{codec}]')"


@contextmanager
def producer(bootstrap: str, codec: str = "none", **settings: Any) -> Iterator[KafkaProducer]:
    compression = None if codec == "none" else codec
    sender = KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, **{"linger_ms": 5, **settings})
    try:
        yield sender
    finally:
        sender.close(timeout=DEADLINE_S)


def send(sender: KafkaProducer, topic: str, samples: Iterable[Sample], partition: int = 0) -> list[int]:
    """Send all and wait for all; the offsets in order."""
    futures = [
        sender.send(
            topic,
            value=sample.value,
            key=sample.key,
            headers=list(sample.headers) or None,
            partition=partition,
            timestamp_ms=sample.timestamp_ms,
        )
        for sample in samples
    ]
    sender.flush(timeout=DEADLINE_S)
    return [future.get(timeout=DEADLINE_S).offset for future in futures]


@contextmanager
def assigned(
    bootstrap: str, topic: str, offset: int = 0, partition: int = 0, **settings: Any
) -> Iterator[KafkaConsumer]:
    """A consumer that reads one partition from an offset, with no group."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, **{"group_id": None, "auto_offset_reset": "none", **settings})
    try:
        here = TopicPartition(topic, partition)
        consumer.assign([here])
        consumer.seek(here, offset)
        yield consumer
    finally:
        consumer.close(autocommit=False)


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    """The next `count` records."""
    records: list[Any] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < count:
        for batch in consumer.poll(timeout_ms=1000, max_records=count - len(records)).values():
            records.extend(batch)
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
    return records


def as_samples(records: Iterable[Any]) -> list[Sample]:
    return [Sample(r.key, r.value, tuple((k, v) for k, v in r.headers), r.timestamp) for r in records]


@contextmanager
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield client
    finally:
        client.close()


def create_topic(client: KafkaAdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    client.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=settings)])
    client.wait_for_topics([topic])
