"""Replicas of a cluster of brokers, where they are, and how they are throttled."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from braidlog import Consumer, Producer
from braidlog.client.admin import Admin, ConfigResource, ConfigSource, NewTopic, OffsetSpec, TopicDescription
from braidlog.core.types import TopicPartition
from support.eventually import eventually

KNOWN_WITHIN_S = 60.0
MB = 1_000_000
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


class Member(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def is_running(self) -> bool: ...


class World:
    def __init__(self, bootstrap: str, brokers: Sequence[Member]) -> None:
        self.bootstrap = bootstrap
        self.brokers = brokers
        self.admin = Admin(bootstrap_servers=self.bootstrap)

    def create(self, topic: str, *assignment: list[int]) -> None:
        self.admin.create_topics([NewTopic(topic, assignment=assignment)]).raise_for_errors()
        eventually(lambda: self._is_led(topic), KNOWN_WITHIN_S)

    def _is_led(self, topic: str) -> bool:
        """Another broker than the controller may be asked, and hear of the topic later."""
        found = self.admin.describe_topics([topic]).outcomes[topic]
        return isinstance(found, TopicDescription) and all(each.leader is not None for each in found.partitions)

    def fill(self, topic: str, partition: int, size: int) -> None:
        """Batches of a size that divides the rates."""
        with Producer(bootstrap_servers=self.bootstrap, batch_size=50_000, linger_ms=20) as producer:
            for _ in range(size // 10_000):
                producer.send(topic, bytes(9_900), partition=partition)

    def replicas(self, topic: str) -> list[tuple[int, ...]]:
        return [each.replicas for each in self.admin.describe_topics([topic])[topic].partitions]

    def leaders(self, topic: str) -> list[int | None]:
        return [each.leader for each in self.admin.describe_topics([topic])[topic].partitions]

    def throttles(self, topic: str) -> dict[str, str]:
        """Settings of the topic, and of the brokers that run."""
        found: dict[str, str] = {}
        resource = ConfigResource.topic(topic)
        for name, entry in self.admin.describe_configs([resource], names=LISTS)[resource].items():
            if entry.source == ConfigSource.DYNAMIC_TOPIC:
                found[name] = entry.value or ""
        brokers = [ConfigResource.broker(each.id) for each in self.brokers if each.is_running]
        for broker, entries in self.admin.describe_configs(brokers, names=RATES).items():
            for name, entry in entries.items():
                if entry.source == ConfigSource.DYNAMIC_BROKER:
                    found[f"{broker.name} {name}"] = entry.value or ""
        return found

    def sizes(self, topic: str, partition: int) -> dict[int, int]:
        place = TopicPartition(topic, partition)
        return {
            broker: sum(each.replicas[place].size_bytes for each in directories if place in each.replicas)
            for broker, directories in self.admin.describe_log_dirs(partitions=[place]).succeeded.items()
        }

    def read(self, topic: str, partition: int) -> int:
        """How many records there are."""
        place = TopicPartition(topic, partition)
        end = self.admin.list_offsets({place: OffsetSpec.LATEST})[place].offset
        found = 0
        with Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([place])
            deadline = time.monotonic() + KNOWN_WITHIN_S
            while found < end and time.monotonic() < deadline:
                found += len(consumer.poll(1.0))
        assert found == end
        return found


def write_plan(path: Path, topic: str, *replicas: list[int]) -> str:
    partitions = [{"topic": topic, "partition": index, "replicas": each} for index, each in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)
