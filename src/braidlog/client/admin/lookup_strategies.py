"""Who answers for what: any broker, the controller, a broker by its id, the leader of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic

from braidlog.client.admin.api_driver import ANY, LookupResult
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.results import Failure, Item
from braidlog.client.broker_errors import broker_error
from braidlog.core.protocol_errors import (
    NONE,
    BrokerNotAvailableError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotControllerError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    ProtocolError,
    ThrottlingQuotaExceededError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition

_LOADING: Final = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError)
_NOT_NOW: Final = (NotControllerError, ThrottlingQuotaExceededError)
_MOVED: Final = (
    NotLeaderOrFollowerError,
    LeaderNotAvailableError,
    BrokerNotAvailableError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    OffsetNotAvailableError,
    KafkaStorageError,
)
# A topic that was created this moment is not known to every broker yet; one that stays unknown does not exist.
_TRIES_OF_UNKNOWN: Final = 3
# Nor does a partition stay without a leader for long; a person should be told of one that does.
_TRIES_OF_LEADERLESS: Final = 6


class AnyBrokerStrategy(Generic[Item]):
    """Every broker knows the answer."""

    def lookup(self, cluster: ClusterConnection, items: Sequence[Item]) -> LookupResult[Item]:
        return LookupResult({ANY: list(items)}, {})

    def forget(self, items: Iterable[Item]) -> None:
        pass

    def is_retriable(self, error: ProtocolError) -> bool:
        return isinstance(error, _LOADING)


class ControllerStrategy(Generic[Item]):
    """The one broker that changes what all agree on, or one that passes the request on to it."""

    def __init__(self) -> None:
        self._is_stale = False

    def lookup(self, cluster: ClusterConnection, items: Sequence[Item]) -> LookupResult[Item]:
        if self._is_stale or cluster.controller_id < 0:
            cluster.metadata([])
            self._is_stale = False
        return LookupResult({cluster.controller_id if cluster.controller_id >= 0 else ANY: list(items)}, {})

    def forget(self, items: Iterable[Item]) -> None:
        self._is_stale = True

    def is_retriable(self, error: ProtocolError) -> bool:
        return isinstance(error, _NOT_NOW)


class BrokerStrategy(Generic[Item]):
    """Each item belongs to a broker, or to whichever (`ANY`)."""

    def __init__(self, broker_of: Callable[[Item], int]) -> None:
        self._broker_of = broker_of

    def lookup(self, cluster: ClusterConnection, items: Sequence[Item]) -> LookupResult[Item]:
        lookup_result: LookupResult[Item] = LookupResult({}, {})
        for item in items:
            broker_id = self._broker_of(item)
            if broker_id != ANY and broker_id not in cluster.addresses and broker_id not in cluster.broker_ids:
                lookup_result.refused[item] = cluster.absent(broker_id)
            else:
                lookup_result.by_broker.setdefault(broker_id, []).append(item)
        return lookup_result

    def forget(self, items: Iterable[Item]) -> None:
        pass

    def is_retriable(self, error: ProtocolError) -> bool:
        return isinstance(error, _LOADING)


class PartitionLeaderStrategy:
    """Partitions, each asked about at its leader. Used for one call, since it counts the tries."""

    def __init__(self) -> None:
        self._looked = 0

    def lookup(self, cluster: ClusterConnection, items: Sequence[TopicPartition]) -> LookupResult[TopicPartition]:
        self._looked += 1
        topics = {topic.name: topic for topic in cluster.metadata(sorted({each.topic for each in items}))}
        lookup_result: LookupResult[TopicPartition] = LookupResult({}, {})
        for each in items:
            topic = topics[each.topic]
            leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
            problem: Failure | None = None
            if topic.error_code != NONE:
                problem = broker_error(topic.error_code, str(each))
            elif each.partition not in leaders:
                problem = UnknownTopicOrPartitionError(
                    f"topic {each.topic} has no partition {each.partition}; it has {len(leaders)}, counted from 0"
                )
            elif leaders[each.partition] < 0:
                problem = broker_error(LeaderNotAvailableError.code, str(each))
            if problem is not None:
                lookup_result.refused[each] = problem
            else:
                lookup_result.by_broker.setdefault(leaders[each.partition], []).append(each)
        return lookup_result

    def forget(self, items: Iterable[TopicPartition]) -> None:
        pass

    def is_retriable(self, error: ProtocolError) -> bool:
        if isinstance(error, (UnknownTopicOrPartitionError, UnknownTopicIdError)):
            return self._looked < _TRIES_OF_UNKNOWN
        if isinstance(error, LeaderNotAvailableError):
            return self._looked < _TRIES_OF_LEADERLESS
        return isinstance(error, _MOVED)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found
