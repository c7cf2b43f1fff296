"""The replicas of a cluster as they are and will be, and moves of them: read, asked for, cancelled, verified."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from braidlog.cli.output import remark_failure
from braidlog.cli.reassignment.planner import BrokerPlace
from braidlog.client.admin.admin import Admin
from braidlog.client.admin.reassignments import Reassignment
from braidlog.client.admin.topics import TopicDescription
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition

# Partitions in one request.
_AT_A_TIME: Final = 500

ReplicaSizes = Mapping[tuple[TopicPartition, int], int]


class Move(NamedTuple):
    """A partition's brokers before and after, preferred leader first, and the bytes of one copy of it."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int = 0

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(each for each in self.after if each not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(each for each in self.before if each not in self.after)

    @property
    def bytes(self) -> int:
        """All that has to be copied."""
        return self.size * len(self.adding)


@dataclass(frozen=True, slots=True)
class ClusterState:
    # Of each partition as they will be when what is under way is done.
    replicas: Mapping[TopicPartition, tuple[int, ...]]
    ongoing: Mapping[TopicPartition, Reassignment]
    sizes: Mapping[TopicPartition, int]
    # Those that are alive.
    brokers: Mapping[int, BrokerPlace]

    def moves_to(self, planned: Mapping[TopicPartition, tuple[int, ...]]) -> list[Move]:
        """Those that are not done, nor under way already."""
        return [
            Move(each, self.replicas[each], after, self.sizes.get(each, 0))
            for each, after in sorted(planned.items())
            if self.replicas[each] != after
        ]

    @property
    def moves_under_way(self) -> list[Move]:
        return [move_under_way(each, moving, self.sizes.get(each, 0)) for each, moving in sorted(self.ongoing.items())]


def move_under_way(partition: TopicPartition, moving: Reassignment, size: int = 0) -> Move:
    return Move(
        partition,
        tuple(each for each in moving.replicas if each not in moving.adding),
        tuple(each for each in moving.replicas if each not in moving.removing),
        size,
    )


def read_cluster(admin: Admin, topics: Collection[str] | None) -> ClusterState:
    """Of these topics, or of all; raises UnknownTopicOrPartitionError."""
    described = admin.describe_topics(None if topics is None else sorted(topics)).values()
    replicas = {
        TopicPartition(topic.name, each.partition): each.replicas for topic in described for each in topic.partitions
    }
    ongoing = {each: moving for each, moving in admin.list_partition_reassignments().items() if each in replicas}
    replicas.update({each: move_under_way(each, moving).after for each, moving in ongoing.items()})
    brokers = {each.broker_id: BrokerPlace(each.rack, each.host) for each in admin.describe_cluster().brokers}
    sizes: dict[TopicPartition, int] = {}
    for (partition, _), size in read_sizes(admin, None, None if topics is None else replicas).items():
        sizes[partition] = max(size, sizes.get(partition, 0))
    return ClusterState(replicas, ongoing, sizes, brokers)


def read_sizes(
    admin: Admin, brokers: Collection[int] | None, partitions: Iterable[TopicPartition] | None
) -> dict[tuple[TopicPartition, int], int]:
    """Bytes of replicas, on these brokers or on all; of those that cannot be asked only a remark tells."""
    asked = None if partitions is None else list(partitions)
    described = admin.describe_log_dirs(None if brokers is None else sorted(brokers), partitions=asked)
    for problem in described.errors.values():
        remark_failure(problem)
    return {
        (partition, broker): replica.size_bytes
        for broker, directories in described.succeeded.items()
        for directory in directories
        for partition, replica in directory.replicas.items()
        if not replica.is_future
    }


def ask_for(admin: Admin, moves: Sequence[Move]) -> dict[TopicPartition, ProtocolError | BraidlogError]:
    """What was refused; the others are under way."""
    refused: dict[TopicPartition, ProtocolError | BraidlogError] = {}
    for some in _parts(moves):
        targets = {each.partition: list(each.after) for each in some}
        refused.update(admin.alter_partition_reassignments(targets).errors)
    return refused


def cancel(admin: Admin, moves: Sequence[Move]) -> dict[TopicPartition, ProtocolError | BraidlogError]:
    """What was refused."""
    refused: dict[TopicPartition, ProtocolError | BraidlogError] = {}
    for some in _parts(moves):
        refused.update(admin.alter_partition_reassignments({each.partition: None for each in some}).errors)
    return refused


def still_under_way(admin: Admin, moves: Sequence[Move]) -> list[Move]:
    """In the order given."""
    if not moves:
        return []
    ongoing = admin.list_partition_reassignments()
    return [each for each in moves if each.partition in ongoing]


class Verdict(NamedTuple):
    move: Move
    # None once the partition is where it should be.
    problem: str | None
    # Done as the controller says, and shown as under way by a broker that has not heard of it yet.
    is_news: bool = False


def verify(admin: Admin, moves: Sequence[Move]) -> list[Verdict]:
    """Whether each is done."""
    ongoing = admin.list_partition_reassignments()
    topics = admin.describe_topics(sorted({each.partition.topic for each in moves})).outcomes if moves else {}
    return [_verdict(each, topics.get(each.partition.topic), ongoing) for each in moves]


def _verdict(
    move: Move,
    topic: TopicDescription | ProtocolError | BraidlogError | None,
    ongoing: Mapping[TopicPartition, Reassignment],
) -> Verdict:
    if topic is None or isinstance(topic, UnknownTopicOrPartitionError):
        return Verdict(move, "the topic is gone")
    if not isinstance(topic, TopicDescription):
        return Verdict(move, str(topic))
    if move.partition in ongoing:
        return Verdict(move, "under way")
    number = move.partition.partition
    found = next((each.replicas for each in topic.partitions if each.partition == number), ())
    if found == move.after:
        return Verdict(move, None)
    problem = f"on {_listed(found)} instead of {_listed(move.after)}; somebody else may have moved or cancelled it"
    return Verdict(move, problem, set(found) == {*move.before, *move.after})


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "no broker"


def _parts(moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
    for first in range(0, len(moves), _AT_A_TIME):
        yield moves[first : first + _AT_A_TIME]
