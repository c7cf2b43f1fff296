"""Faults of a cluster's brokers, drawn from a seed: to whom, by its role at that moment, and what."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from braidlog.testing import Cluster, ClusterBroker
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.cluster import View, agreed_view
from support.cluster_faults import KNOWN_WITHIN_S, session_s
from support.eventually import eventually
from support.ports import lasting_port
from support.raw import ask

CONTROLLER: Final = "controller"
GROUP_COORDINATOR: Final = "group coordinator"
TRANSACTION_COORDINATOR: Final = "transaction coordinator"
LEADER: Final = "leader"

KILLED: Final = "killed"
STOPPED: Final = "stopped"
PAUSED: Final = "paused"
MOVED: Final = "killed and moved"
# A death is the hardest, so that it comes most often.
_WEIGHTS: Final = {KILLED: 4, STOPPED: 1, PAUSED: 2, MOVED: 1}
# Past its session a broker is replaced; within it, nobody notices but those who wait for it.
_BRIEFLY_S: Final = 0.5
_PAST_SESSION_S: Final = 2.0


class BrokerFaults:
    """`groups`, `transactional_ids` and `topics` are those that the roles are about.

    `moves`: whether a broker may come back at another address.
    """

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        *,
        topics: list[str],
        groups: list[str] | None = None,
        transactional_ids: list[str] | None = None,
        moves: bool = False,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._find: dict[str, Callable[[], ClusterBroker]] = {
            CONTROLLER: lambda: self._at(self._view(lambda view: view.controller >= 0).controller),
            LEADER: lambda: self._leader(random.choice(topics)),
        }
        if groups:
            self._find[GROUP_COORDINATOR] = lambda: self._coordinator(0, random.choice(groups))
        if transactional_ids:
            self._find[TRANSACTION_COORDINATOR] = lambda: self._coordinator(1, random.choice(transactional_ids))
        self._manners = [each for each, weight in _WEIGHTS.items() for _ in range(weight) if moves or each != MOVED]
        # By role and manner.
        self.counts: Counter[tuple[str, str]] = Counter()

    @property
    def kills(self) -> int:
        return sum(count for (_, manner), count in self.counts.items() if manner in (KILLED, MOVED))

    def count(self, manner: str) -> int:
        return sum(count for (_, each), count in self.counts.items() if each == manner)

    def strike(self) -> str:
        """One fault; the broker is back when this returns. What it was, for whoever watches."""
        role = self._random.choice(sorted(self._find))
        manner = self._random.choice(self._manners)
        broker = self._find[role]()
        self.counts[role, manner] += 1
        if manner == PAUSED:
            broker.pause()
            pauses_s = (_BRIEFLY_S, session_s(self._cluster) + _PAST_SESSION_S)
            time.sleep(self._random.choice(pauses_s))  # the pause is the fault
            broker.resume()
        elif manner == STOPPED:
            broker.stop()
            broker.start()
        else:
            broker.kill()
            if manner == MOVED:
                # Another process, elsewhere, goes on with its data.
                broker.port = lasting_port()
            broker.start()
        return f"broker {broker.id}, {role}: {manner}"

    def settle(self) -> None:
        """Until all brokers know each other again, and lead everything."""
        count = len(self._cluster.brokers)
        agreed_view(
            self._cluster.brokers,
            lambda view: (
                len(view.brokers) == count and all(min(leaders) >= 0 for leaders in view.leaders.values() if leaders)
            ),
            session_s(self._cluster) + KNOWN_WITHIN_S,
        )

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.count(STOPPED)} stops, {self.count(PAUSED)} pauses of brokers"

    def by_role(self) -> str:
        return ", ".join(f"{role} {manner} {count}" for (role, manner), count in sorted(self.counts.items()))

    def _view(self, right: Callable[[View], bool]) -> View:
        return agreed_view(self._cluster.brokers, right, session_s(self._cluster) + KNOWN_WITHIN_S)

    def _at(self, broker_id: int) -> ClusterBroker:
        return self._cluster.brokers[broker_id]

    def _leader(self, topic: str) -> ClusterBroker:
        leaders = self._view(lambda view: min(view.leaders.get(topic, (-1,))) >= 0).leaders[topic]
        return self._at(self._random.choice(leaders))

    def _coordinator(self, key_type: int, key: str) -> ClusterBroker:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        found: list[int] = []

        def is_known() -> bool:
            try:
                answer = ask(self._cluster.brokers[0].port, "FindCoordinator", 4, request)
            except OSError:
                return False
            assert isinstance(answer, FindCoordinatorResponse)
            found[:] = [each.node_id for each in answer.coordinators if each.error_code == 0]
            return bool(found)

        eventually(is_known, session_s(self._cluster) + KNOWN_WITHIN_S)
        return self._at(found[0])
