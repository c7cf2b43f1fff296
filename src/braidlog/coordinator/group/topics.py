"""The cluster's topics, as much as groups need to know of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class TopicFacts(NamedTuple):
    topic_id: bytes
    partitions: int


class Topics(Protocol):
    """A view that is always current; the broker tells shards when it changes."""

    def get(self, name: str) -> TopicFacts | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]: ...

    def racks_of(self, name: str, partition: int) -> frozenset[str]:
        """The racks that hold a replica of the partition."""
        ...
