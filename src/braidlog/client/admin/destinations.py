"""Who answers for what: any broker, the controller, a broker by its id, the leader of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic

from braidlog.client.admin.results import Failure, Item
from braidlog.client.admin.routing import ANY, Located
from braidlog.client.cluster import Cluster
from braidlog.client.refusals import refusal
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


class Anyone(Generic[Item]):
    """Every broker knows the answer."""

    def locate(self, cluster: Cluster, items: Sequence[Item]) -> Located[Item]:
        return Located({ANY: list(items)}, {})

    def forget(self, items: Iterable[Item]) -> None:
        pass

    def is_passing(self, error: ProtocolError) -> bool:
        return isinstance(error, _LOADING)


class Controller(Generic[Item]):
    """The one broker that changes what all agree on, or one that passes the request on to it."""

    def __init__(self) -> None:
        self._is_stale = False

    def locate(self, cluster: Cluster, items: Sequence[Item]) -> Located[Item]:
        if self._is_stale or cluster.controller_id < 0:
            cluster.metadata([])
            self._is_stale = False
        return Located({cluster.controller_id if cluster.controller_id >= 0 else ANY: list(items)}, {})

    def forget(self, items: Iterable[Item]) -> None:
        self._is_stale = True

    def is_passing(self, error: ProtocolError) -> bool:
        return isinstance(error, _NOT_NOW)


class Brokers(Generic[Item]):
    """Each item belongs to a broker, or to whichever (`ANY`)."""

    def __init__(self, broker_of: Callable[[Item], int]) -> None:
        self._broker_of = broker_of

    def locate(self, cluster: Cluster, items: Sequence[Item]) -> Located[Item]:
        located: Located[Item] = Located({}, {})
        for item in items:
            broker_id = self._broker_of(item)
            if broker_id != ANY and broker_id not in cluster.addresses and broker_id not in cluster.broker_ids:
                located.refused[item] = cluster.absent(broker_id)
            else:
                located.by_broker.setdefault(broker_id, []).append(item)
        return located

    def forget(self, items: Iterable[Item]) -> None:
        pass

    def is_passing(self, error: ProtocolError) -> bool:
        return isinstance(error, _LOADING)


class Leaders:
    """Partitions, each asked about at its leader. Used for one call, since it counts the tries."""

    def __init__(self) -> None:
        self._looked = 0

    def locate(self, cluster: Cluster, items: Sequence[TopicPartition]) -> Located[TopicPartition]:
        self._looked += 1
        topics = {topic.name: topic for topic in cluster.metadata(sorted({each.topic for each in items}))}
        located: Located[TopicPartition] = Located({}, {})
        for each in items:
            topic = topics[each.topic]
            leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
            problem: Failure | None = None
            if topic.error_code != NONE:
                problem = refusal(topic.error_code, str(each))
            elif each.partition not in leaders:
                problem = UnknownTopicOrPartitionError(
                    f"topic {each.topic} has no partition {each.partition}; it has {len(leaders)}, counted from 0"
                )
            elif leaders[each.partition] < 0:
                problem = refusal(LeaderNotAvailableError.code, str(each))
            if problem is not None:
                located.refused[each] = problem
            else:
                located.by_broker.setdefault(leaders[each.partition], []).append(each)
        return located

    def forget(self, items: Iterable[TopicPartition]) -> None:
        pass

    def is_passing(self, error: ProtocolError) -> bool:
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
