"""Which broker answers for what: any, the controller, one by its id, a partition's leader, a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, Protocol

from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.admin.results import Failure, Item
from braidlog.client.broker_errors import broker_error
from braidlog.client.network.lookups import find_coordinators
from braidlog.client.requests.find_coordinator import CoordinatorType
from braidlog.core.protocol_errors import (
    NONE,
    BrokerNotAvailableError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    ProtocolError,
    ThrottlingQuotaExceededError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from braidlog.core.types import TopicPartition, address_text
from braidlog.wire.generated.find_coordinator import Coordinator

# Stands for whichever broker is connected.
ANY: Final = -1
# A question about thousands of things is cut into pieces of this many.
AT_ONCE: Final = 500

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
# Nor does a partition stay without a leader for long; one that does is reported.
_TRIES_OF_LEADERLESS: Final = 6
_COORDINATOR_MOVING: Final = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    # The transaction before is being ended, and an offset waits for one.
    ConcurrentTransactionsError,
    UnstableOffsetCommitError,
)


class LookupResult(NamedTuple, Generic[Item]):
    """Which broker to ask about what, and what no broker can be asked about."""

    by_broker: dict[int, list[Item]]
    refused: dict[Item, Failure]


class LookupStrategy(Protocol[Item]):
    """Knows which broker answers for an item."""

    async def lookup(self, call: ClusterCall, items: Sequence[Item]) -> LookupResult[Item]: ...

    def forget(self, items: Iterable[Item]) -> None:
        """Where these were is no longer true."""

    def is_retriable(self, error: ProtocolError) -> bool:
        """Whether asking again, perhaps elsewhere, may help."""


class AnyBrokerStrategy(Generic[Item]):
    """Every broker knows the answer."""

    async def lookup(self, call: ClusterCall, items: Sequence[Item]) -> LookupResult[Item]:
        return LookupResult({ANY: list(items)}, {})

    def forget(self, items: Iterable[Item]) -> None:
        pass

    def is_retriable(self, error: ProtocolError) -> bool:
        return isinstance(error, _LOADING)


class ControllerStrategy(Generic[Item]):
    """The one broker that changes what all agree on, or one that passes the request on to it."""

    def __init__(self) -> None:
        self._is_stale = False

    async def lookup(self, call: ClusterCall, items: Sequence[Item]) -> LookupResult[Item]:
        if self._is_stale or call.view.controller_id < 0:
            await call.metadata([])
            self._is_stale = False
        controller_id = call.view.controller_id
        return LookupResult({controller_id if controller_id >= 0 else ANY: list(items)}, {})

    def forget(self, items: Iterable[Item]) -> None:
        self._is_stale = True

    def is_retriable(self, error: ProtocolError) -> bool:
        return isinstance(error, _NOT_NOW)


class BrokerStrategy(Generic[Item]):
    """Each item belongs to a broker, or to whichever (`ANY`)."""

    def __init__(self, broker_of: Callable[[Item], int]) -> None:
        self._broker_of = broker_of

    async def lookup(self, call: ClusterCall, items: Sequence[Item]) -> LookupResult[Item]:
        lookup_result: LookupResult[Item] = LookupResult({}, {})
        for item in items:
            broker_id = self._broker_of(item)
            if broker_id != ANY and broker_id not in await call.broker_ids():
                lookup_result.refused[item] = await call.absent(broker_id)
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

    async def lookup(self, call: ClusterCall, items: Sequence[TopicPartition]) -> LookupResult[TopicPartition]:
        self._looked += 1
        topics = {topic.name: topic for topic in await call.metadata(sorted({each.topic for each in items}))}
        lookup_result: LookupResult[TopicPartition] = LookupResult({}, {})
        for each in items:
            topic = topics[each.topic]
            failed = topic.error_code != NONE
            found = broker_error(topic.error_code, str(each)) if failed else topic.partition_with_leader(each.partition)
            if isinstance(found, ProtocolError):
                lookup_result.refused[each] = found
            else:
                lookup_result.by_broker.setdefault(found.leader, []).append(each)
        return lookup_result

    def forget(self, items: Iterable[TopicPartition]) -> None:
        pass

    def is_retriable(self, error: ProtocolError) -> bool:
        if isinstance(error, (UnknownTopicOrPartitionError, UnknownTopicIdError)):
            return self._looked < _TRIES_OF_UNKNOWN
        if isinstance(error, LeaderNotAvailableError):
            return self._looked < _TRIES_OF_LEADERLESS
        return isinstance(error, _MOVED)


class CoordinatorNode(NamedTuple):
    """A broker that coordinates."""

    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{address_text(self.host, self.port)} ({self.broker_id})"


class CoordinatorStrategy:
    """The coordinators of groups or of transactional ids, each found once."""

    def __init__(self, kind: CoordinatorType) -> None:
        self._kind = kind
        # The last that was heard of each; of those that are stale it is looked up again.
        self._places: dict[str, CoordinatorNode] = {}
        self._stale: set[str] = set()

    def place_of(self, name: str) -> CoordinatorNode:
        """Of a name that was asked about."""
        return self._places[name]

    def named(self, name: str) -> str:
        return f"{self._kind.noun} {name}"

    async def lookup(self, call: ClusterCall, items: Sequence[str]) -> LookupResult[str]:
        lookup_result: LookupResult[str] = LookupResult({}, {})
        missing = [name for name in items if name not in self._places or name in self._stale]
        for first in range(0, len(missing), AT_ONCE):
            for found in await self._look_up(call, missing[first : first + AT_ONCE]):
                if found.error_code != NONE:
                    lookup_result.refused[found.key] = broker_error(found.error_code, self.named(found.key))
                    continue
                call.learn(found.node_id, (found.host, found.port))
                self._places[found.key] = CoordinatorNode(found.node_id, found.host, found.port)
                self._stale.discard(found.key)
        for name in items:
            if name not in lookup_result.refused and name in self._places:
                lookup_result.by_broker.setdefault(self._places[name].broker_id, []).append(name)
        return lookup_result

    async def _look_up(self, call: ClusterCall, names: list[str]) -> list[Coordinator]:
        return await find_coordinators(await call.any(), self._kind, names, call.time_left_s())

    def forget(self, items: Iterable[str]) -> None:
        self._stale.update(items)

    def is_retriable(self, error: ProtocolError) -> bool:
        return isinstance(error, _COORDINATOR_MOVING)
