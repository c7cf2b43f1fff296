"""A cluster as its metadata describes it: immutable, so that any thread may read it while the next is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from braidlog.client.broker_errors import broker_error
from braidlog.core.protocol_errors import NONE, LeaderNotAvailableError, ProtocolError, UnknownTopicOrPartitionError
from braidlog.wire.generated.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class BrokerView(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int = NONE


class TopicView(NamedTuple):
    name: str
    # All zeros where the cluster knows no topic ids.
    topic_id: bytes
    error_code: int
    is_internal: bool
    # By index, without gaps.
    partitions: tuple[PartitionView, ...]

    def leader_of(self, partition: int) -> int:
        """The broker that leads a partition, or NO_LEADER."""
        return self.partitions[partition].leader if 0 <= partition < len(self.partitions) else NO_LEADER

    def partition_with_leader(self, partition: int) -> PartitionView | ProtocolError:
        """A partition that has a leader, or why there is none to ask."""
        if not 0 <= partition < len(self.partitions):
            return UnknownTopicOrPartitionError(
                f"topic {self.name} has no partition {partition}; it has {len(self.partitions)}, counted from 0"
            )
        found = self.partitions[partition]
        if found.leader == NO_LEADER:
            return broker_error(LeaderNotAvailableError.code, f"{self.name}-{partition}")
        return found

    @property
    def available(self) -> tuple[int, ...]:
        """The partitions that have a leader."""
        return tuple(each.index for each in self.partitions if each.leader != NO_LEADER)


class ClusterView(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, TopicView]

    def topic(self, name: str) -> TopicView | None:
        """A topic that exists, with its partitions."""
        found = self.topics.get(name)
        return found if found is not None and found.error_code == NONE else None

    def partition(self, name: str, index: int) -> PartitionView | None:
        found = self.topic(name)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]


EMPTY: Final = ClusterView("", NO_LEADER, MappingProxyType({}), MappingProxyType({}))


def view_of(response: MetadataResponse, before: ClusterView, keep: frozenset[str]) -> ClusterView:
    """What a response says, over what was known: topics to `keep` that it does not name stay as they were.

    A broker may lag behind another one: a leader of an older epoch than the known one is passed over (KIP-320).
    """
    topics = {name: topic for name, topic in before.topics.items() if name in keep}
    for answer in response.topics:
        if answer.name is not None:
            topics[answer.name] = _topic(answer, before.topics.get(answer.name))
    brokers = {each.node_id: BrokerView(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
    return ClusterView(
        response.cluster_id or "", response.controller_id, MappingProxyType(brokers), MappingProxyType(topics)
    )


def _topic(answer: MetadataResponseTopic, before: TopicView | None) -> TopicView:
    same = before is not None and before.topic_id == answer.topic_id
    partitions: list[PartitionView] = []
    for each in sorted(answer.partitions, key=lambda each: each.partition_index):
        fresh = _partition(each)
        known = before.partitions[fresh.index] if before and same and fresh.index < len(before.partitions) else None
        # One who knows no epochs says nothing about which is newer.
        is_older = known is not None and NO_EPOCH < fresh.leader_epoch < known.leader_epoch
        partitions.append(known if known is not None and is_older else fresh)
    return TopicView(answer.name or "", answer.topic_id, answer.error_code, answer.is_internal, tuple(partitions))


def _partition(answer: MetadataResponsePartition) -> PartitionView:
    return PartitionView(
        answer.partition_index,
        answer.leader_id,
        answer.leader_epoch,
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
        answer.error_code,
    )


def with_leader(view: ClusterView, topic: str, partition: int, leader: int, epoch: int) -> ClusterView:
    """The view after a broker named the new leader of a partition (KIP-951); the same where that is no news."""
    known = view.partition(topic, partition)
    if known is None or epoch <= known.leader_epoch or leader not in view.brokers:
        return view
    found = view.topics[topic]
    partitions = list(found.partitions)
    partitions[partition] = replace(known, leader=leader, leader_epoch=epoch)
    topics = {**view.topics, topic: found._replace(partitions=tuple(partitions))}
    return view._replace(topics=MappingProxyType(topics))
