"""Finds who coordinates groups and transactional ids, and asks them; one that moves or still loads is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from braidlog.client.cluster import Cluster
from braidlog.client.node import Node
from braidlog.client.refusals import check, refusal
from braidlog.client.retrying import Retry
from braidlog.core.protocol_errors import (
    NONE,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIND_COORDINATOR: Final = 10
# The first version that takes several keys at once.
_BATCHED: Final = 4
# A request for thousands of names is cut into pieces of this many.
_AT_ONCE: Final = 500

_PASSING: Final = frozenset(
    each.code
    for each in (
        CoordinatorLoadInProgressError,
        CoordinatorNotAvailableError,
        NotCoordinatorError,
        # The transaction before is being ended.
        ConcurrentTransactionsError,
    )
)

Answer = TypeVar("Answer")


class Kind(NamedTuple):
    """What is coordinated: the protocol's number for it and how a person calls it."""

    key_type: int
    noun: str


GROUP: Final = Kind(0, "group")
TRANSACTION: Final = Kind(1, "transactional id")


class Place(NamedTuple):
    """A broker that coordinates."""

    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.broker_id})"


class Coordinators:
    """The coordinators of one kind of thing, each found once."""

    def __init__(self, cluster: Cluster, kind: Kind, new_retry: Callable[[float], Retry] = Retry) -> None:
        self._cluster = cluster
        self._kind = kind
        self._new_retry = new_retry
        self._places: dict[str, Place] = {}

    def place_of(self, name: str) -> Place:
        self._find([name], self._new_retry(self._cluster.timeout_s))
        return self._places[name]

    def ask(
        self,
        names: Iterable[str],
        question: Callable[[Node, list[str]], dict[str, Answer]],
        error_code: Callable[[Answer], int],
    ) -> dict[str, Answer]:
        """What `question` learns of each name from its coordinator, in the order of the names.

        An answer that says to come back later, or to go elsewhere, is asked for again; if it stays the last one
        is returned like any other.
        """
        order = list(dict.fromkeys(names))
        found: dict[str, Answer] = {}
        waiting = order
        retry = self._new_retry(self._cluster.timeout_s)
        while waiting:
            self._find(waiting, retry)
            for broker_id, some in self._by_broker(waiting):
                found |= question(self._cluster.node(broker_id), some)
            waiting = [name for name in order if name in found and error_code(found[name]) in _PASSING]
            for name in waiting:
                self._places.pop(name, None)
            if waiting and not retry.again():
                break
        return {name: found[name] for name in order if name in found}

    def _by_broker(self, names: Sequence[str]) -> list[tuple[int, list[str]]]:
        by_broker: dict[int, list[str]] = {}
        for name in names:
            by_broker.setdefault(self._places[name].broker_id, []).append(name)
        return [
            (broker_id, some[first : first + _AT_ONCE])
            for broker_id, some in by_broker.items()
            for first in range(0, len(some), _AT_ONCE)
        ]

    def _find(self, names: Sequence[str], retry: Retry) -> None:
        missing = [name for name in names if name not in self._places]
        while missing:
            problems: list[Coordinator] = []
            for first in range(0, len(missing), _AT_ONCE):
                for each in self._locate(missing[first : first + _AT_ONCE]):
                    if each.error_code == NONE:
                        self._places[each.key] = self._place(each)
                    elif each.error_code in _PASSING:
                        problems.append(each)
                    else:
                        check(each.error_code, self.named(each.key), each.error_message)
            missing = [each.key for each in problems]
            if problems and not retry.again():
                raise refusal(problems[0].error_code, self.named(problems[0].key))

    def _locate(self, names: list[str]) -> list[Coordinator]:
        node = self._cluster.any
        key_type = self._kind.key_type
        if node.version_for(FIND_COORDINATOR) >= _BATCHED:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=names)
            return node.call(FIND_COORDINATOR, request, FindCoordinatorResponse).coordinators
        found: list[Coordinator] = []
        for name in names:
            single = FindCoordinatorRequest(key=name, key_type=key_type)
            answer = node.call(FIND_COORDINATOR, single, FindCoordinatorResponse)
            found.append(
                Coordinator(
                    key=name,
                    node_id=answer.node_id,
                    host=answer.host,
                    port=answer.port,
                    error_code=answer.error_code,
                    error_message=answer.error_message,
                )
            )
        return found

    def _place(self, found: Coordinator) -> Place:
        # One that registered after the metadata was read is not known there yet.
        self._cluster.addresses.setdefault(found.node_id, (found.host, found.port))
        return Place(found.node_id, found.host, found.port)

    def named(self, name: str) -> str:
        return f"{self._kind.noun} {name}"
