"""Types that carry meaning: an offset is not an epoch is not a broker id."""

from __future__ import annotations

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


class Endpoint(NamedTuple):
    """Where a listener is reached: `PLAINTEXT://127.0.0.1:9092` without the security protocol."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"
