"""Finds who coordinates groups and transactional ids; one that moves or still loads is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AT_ONCE, AdminApiDriver, AdminCalls, LookupResult
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.broker_errors import broker_error
from braidlog.client.network.lookups import find_coordinators
from braidlog.client.requests.find_coordinator import GROUP, CoordinatorType
from braidlog.core.protocol_errors import (
    NONE,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProtocolError,
    UnstableOffsetCommitError,
)
from braidlog.core.types import address_text
from braidlog.wire.generated.find_coordinator import Coordinator

_PASSING: Final = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    # The transaction before is being ended, and an offset waits for one.
    ConcurrentTransactionsError,
    UnstableOffsetCommitError,
)


class CoordinatorNode(NamedTuple):
    """A broker that coordinates."""

    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{address_text(self.host, self.port)} ({self.broker_id})"


class CoordinatorStrategy:
    """A destination: the coordinators of one kind of thing, each found once."""

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

    def lookup(self, cluster: ClusterConnection, items: Sequence[str]) -> LookupResult[str]:
        lookup_result: LookupResult[str] = LookupResult({}, {})
        missing = [name for name in items if name not in self._places or name in self._stale]
        for first in range(0, len(missing), AT_ONCE):
            for found in self._look_up(cluster, missing[first : first + AT_ONCE]):
                if found.error_code != NONE:
                    lookup_result.refused[found.key] = broker_error(found.error_code, self.named(found.key))
                    continue
                # One that registered after the metadata was read is not known there yet.
                cluster.addresses.setdefault(found.node_id, (found.host, found.port))
                self._places[found.key] = CoordinatorNode(found.node_id, found.host, found.port)
                self._stale.discard(found.key)
        for name in items:
            if name not in lookup_result.refused and name in self._places:
                lookup_result.by_broker.setdefault(self._places[name].broker_id, []).append(name)
        return lookup_result

    def _look_up(self, cluster: ClusterConnection, names: list[str]) -> list[Coordinator]:
        return cluster.any.run(lambda node, timeout_s: find_coordinators(node, self._kind, names, timeout_s))

    def forget(self, items: Iterable[str]) -> None:
        self._stale.update(items)

    def is_retriable(self, error: ProtocolError) -> bool:
        return isinstance(error, _PASSING)


class GroupAdminCalls(AdminCalls):
    """Calls that go to the coordinators of groups."""

    def __init__(self, driver: AdminApiDriver) -> None:
        super().__init__(driver)
        self._groups = CoordinatorStrategy(GROUP)
