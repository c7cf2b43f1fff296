"""Where the replicas of partitions are moved to, and elections of their leaders (KIP-455, KIP-460)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.client.admin.admin import ElectionType
from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import ControllerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import ByPartition, Partitions, by_partition, partitions_of
from braidlog.client.broker_errors import broker_error, check
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.core.types import TopicPartition, by_topic
from braidlog.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from braidlog.wire.generated.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from braidlog.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

ELECT_LEADERS: Final = 43
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move under way: all replicas, those that come and those that will go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter_partition_reassignments(
    driver: AdminApiDriver, targets: ByPartition[Sequence[int] | None]
) -> Results[TopicPartition, None]:
    wanted = by_partition(targets, "targets", '{TopicPartition("orders", 0): [1, 2]}')
    timeout_ms = driver.timeout_ms

    async def alter(node: BrokerConnection, some: list[TopicPartition]) -> dict[TopicPartition, ProtocolError | None]:
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[_reassignable(each, wanted[TopicPartition(topic, each)]) for each in partitions],
            )
            for topic, partitions in by_topic(sorted(some)).items()
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)
        answer = await node.call(ALTER_PARTITION_REASSIGNMENTS, request, AlterPartitionReassignmentsResponse)
        check(answer.error_code, "reassignments", answer.error_message)
        found: dict[TopicPartition, ProtocolError | None] = {}
        for topic in answer.responses:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                failed = each.error_code != NONE
                found[place] = broker_error(each.error_code, str(place), each.error_message) if failed else None
        return found

    return driver.ask(wanted, ControllerStrategy(), alter)


def list_partition_reassignments(
    driver: AdminApiDriver, partitions: Partitions | None = None
) -> dict[TopicPartition, Reassignment]:
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=each)
            for topic, each in by_topic(sorted(partitions_of(partitions))).items()
        ]
    request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=driver.timeout_ms)

    async def listed(node: BrokerConnection) -> dict[TopicPartition, Reassignment]:
        answer = await node.call(LIST_PARTITION_REASSIGNMENTS, request, ListPartitionReassignmentsResponse)
        check(answer.error_code, "reassignments", answer.error_message)
        found = {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }
        return dict(sorted(found.items()))

    return driver.ask_one(ControllerStrategy(), listed)


def elect_leaders(
    driver: AdminApiDriver, partitions: Partitions | None, kind: ElectionType
) -> Results[TopicPartition, None]:
    timeout_ms = driver.timeout_ms
    if partitions is None:
        return Results(driver.ask_one(ControllerStrategy(), lambda node: _elect(node, None, kind, timeout_ms)))
    where: ControllerStrategy[TopicPartition] = ControllerStrategy()
    wanted = partitions_of(partitions)
    return driver.ask(wanted, where, lambda node, some: _elect(node, some, kind, timeout_ms))


async def _elect(
    node: BrokerConnection, partitions: list[TopicPartition] | None, kind: ElectionType, timeout_ms: int
) -> dict[TopicPartition, ProtocolError | None]:
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=topic, partitions=each) for topic, each in by_topic(sorted(partitions)).items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=timeout_ms)
    answer = await node.call(ELECT_LEADERS, request, ElectLeadersResponse)
    check(answer.error_code, "leader election")
    found: dict[TopicPartition, ProtocolError | None] = {}
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            place = TopicPartition(topic.topic, each.partition_id)
            failed = each.error_code != NONE
            found[place] = broker_error(each.error_code, str(place), each.error_message) if failed else None
    return found


def _reassignable(partition: int, brokers: Sequence[int] | None) -> ReassignablePartition:
    return ReassignablePartition(partition_index=partition, replicas=None if brokers is None else list(brokers))
