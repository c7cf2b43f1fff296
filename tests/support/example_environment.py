"""A env for the examples of pyspark_braidlog on a test's broker and session, and what they wrote there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from braidlog import Consumer, ConsumerRecord, TopicPartition
from braidlog.testing import Broker
from pyspark_braidlog.examples.environment import SESSION_SETTINGS, ExampleEnvironment

_DEADLINE_POLLS = 300


def example_environment(spark: Any, broker: Broker, scratch: Path, events: int) -> ExampleEnvironment:
    """With names of its own on a shared broker, and a session with the examples' settings on the shared Spark."""
    session = spark.newSession()
    for name, value in SESSION_SETTINGS.items():
        session.conf.set(name, value)
    return ExampleEnvironment(broker.bootstrap_servers, session, scratch, broker.unique_topic("example"), events)


def committed_records(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """All of a topic, by braidlog's own consumer; of transactions those that were committed."""
    records: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, each.index) for each in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        for _ in range(_DEADLINE_POLLS):
            records += consumer.poll(0.1)
            if all(consumer.position(each) >= ends[each] for each in partitions):
                return records
    raise AssertionError(f"{topic} could not be read to its end {ends}: {len(records)} records")


def committed_rows(env: ExampleEnvironment, topic: str) -> list[dict[str, Any]]:
    """The JSON values of one of the example's topics, in no particular order."""
    return [json.loads(record.value) for record in committed_records(env.bootstrap, f"{env.prefix}-{topic}")]
