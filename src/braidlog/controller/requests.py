"""What the controller is asked and what it answers, free of any protocol version.

Every answer carries `error`: None, or the protocol error that this one item (topic, partition, resource) met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from braidlog.cluster.image import PartitionInfo
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition

Item = TypeVar("Item")

USE_DEFAULT: Final = -1


class ResourceType(IntEnum):
    """The protocol's numbers for what a config belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class NewTopic(NamedTuple):
    """`assignments` (partition -> replicas) excludes counts: then both stay at USE_DEFAULT."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, tuple[int, ...]] = {}
    configs: Mapping[str, str | None] = {}
    # Of a topic whose logs are there already, from another cluster's directory; ZERO_ID asks for a fresh one.
    topic_id: bytes = ZERO_ID


class NewTopicResult(NamedTuple):
    name: str
    error: ProtocolError | None = None
    topic_id: bytes = ZERO_ID
    partitions: int = -1
    replication_factor: int = -1
    # The overrides the topic was created with; effective values are decided in `config`.
    configs: Mapping[str, str] = {}


class TopicRef(NamedTuple):
    """A topic by name, or by id where the name is None."""

    name: str | None
    topic_id: bytes = ZERO_ID


class DeletedTopicResult(NamedTuple):
    name: str | None
    topic_id: bytes = ZERO_ID
    error: ProtocolError | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Grow `topic` to `count` partitions; `assignments` lists the replicas of each added one."""

    topic: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class TopicResult(NamedTuple):
    name: str
    error: ProtocolError | None = None
    # Partitions.
    added: int = 0


class ConfigResource(NamedTuple):
    """`type` as the wire gave it (a ResourceType if known); a broker's empty name means every broker."""

    type: int
    name: str


class FullConfig(NamedTuple):
    """Replace all overrides of `resource` by `entries`."""

    resource: ConfigResource
    entries: tuple[tuple[str, str | None], ...]


class ConfigChange(NamedTuple):
    key: str
    operation: int
    value: str | None = None


class ConfigChanges(NamedTuple):
    """Change some overrides of `resource`, leaving the others."""

    resource: ConfigResource
    changes: tuple[ConfigChange, ...]


class ConfigResult(NamedTuple):
    resource: ConfigResource
    error: ProtocolError | None = None


class PartitionResult(NamedTuple):
    partition: TopicPartition
    error: ProtocolError | None = None


class Reassignment(NamedTuple):
    """New replicas for a partition; None cancels the reassignment that is under way."""

    partition: TopicPartition
    replicas: tuple[int, ...] | None


class OngoingReassignment(NamedTuple):
    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionChange(NamedTuple):
    """An ISR that a leader proposes: brokers with their epochs, -1 for one whose epoch the leader does not know."""

    partition: TopicPartition
    leader_epoch: LeaderEpoch
    isr: tuple[tuple[BrokerId, int], ...]
    partition_epoch: int
    recovery_state: int = 0

    def without_epochs(self) -> PartitionChange:
        return self._replace(isr=tuple((each, -1) for each, _ in self.isr))


class AlterPartitionResult(NamedTuple):
    partition: TopicPartition
    error: ProtocolError | None = None
    # The partition as it is now, where there was no error.
    info: PartitionInfo | None = None


def pieces(
    requests: Sequence[Item], size_of: Callable[[Item], int], most_items: int, most_in_them: int
) -> Iterator[Sequence[Item]]:
    """A request that is too large for one turn, in order. At least one piece: also nothing is answered in its turn."""
    piece: list[Item] = []
    size = 0
    for request in requests:
        each = max(size_of(request), 0)
        if piece and (len(piece) == most_items or size + each > most_in_them):
            yield piece
            piece, size = [], 0
        piece.append(request)
        size += each
    yield piece
