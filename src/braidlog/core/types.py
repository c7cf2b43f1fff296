"""Types that carry meaning: an offset is not an epoch is not a broker id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)

NO_BROKER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the order given."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def address_text(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Endpoint(NamedTuple):
    """Where a listener is reached: `PLAINTEXT://127.0.0.1:9092` without the security protocol."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{address_text(self.host, self.port)}"
