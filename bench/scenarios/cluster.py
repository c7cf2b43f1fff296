"""Three brokers on one ZooKeeper with many topics: creating them, and the controller's death until everyone knows.

From the moment at which ZooKeeper ended the session of the killed controller, which is the same for both kinds, it is
measured when each broker left names the new controller, and when all of them describe every partition rightly: led as
before, or by nobody where the dead broker was its only replica. Meanwhile a process for each broker asks it a small
question every few milliseconds: the longest wait is how long that broker served nobody.
"""

from __future__ import annotations

import os
import time

from bench import clusters
from bench.clusters import BROKERS, Cluster, ClusterBroker
from bench.machine import resident_bytes
from bench.measures import KAFKA, Better
from bench.probes import exported_lag, probing
from bench.requests import Requester, View
from bench.session import Session
from braidlog.local_cluster.zookeeper import ZooKeeper

TOPIC_PARTITIONS = 10
PARTITIONS = (1_000, 10_000)
# Kafka's controller refuses 10,000 partitions in one request.
TOPICS_IN_A_REQUEST = 100
# One failover a controller: the killed one comes back before the next.
QUICK_FAILOVERS, FAILOVERS = 1, 3
SETTLE_S = 2.0


def measure(session: Session) -> None:
    session.notes.append(f"cluster: load average before it {os.getloadavg()[0]:.1f}")
    with ZooKeeper(properties={"preAllocSize": "16384"}) as zookeeper:
        for count in PARTITIONS[: session.plan.scaled(2, 1)]:
            for name in session.names:
                if name == KAFKA and count > max(session.plan.scale_peer_partitions, PARTITIONS[0]):
                    session.notes.append(f"cluster: Kafka is not measured with {count:,} partitions")
                    continue
                session.progress.show(f"cluster: {count:,} partitions, {name}")
                with clusters.running(session, name, zookeeper, f"{name}{count}") as cluster:
                    _Run(session, cluster, count).measure()
    session.notes.append(f"cluster: load average after it {os.getloadavg()[0]:.1f}")


class _Run:
    """One cluster of one kind with one number of partitions."""

    def __init__(self, session: Session, cluster: Cluster, count: int) -> None:
        self._session = session
        self._cluster = cluster
        self._brokers = cluster.brokers
        self._count = count

    def measure(self) -> None:
        view = self._cluster.complete()
        began = time.monotonic()
        topics = [f"topic-{number:04}" for number in range(self._count // TOPIC_PARTITIONS)]
        with Requester(self._brokers[view.controller].port) as controller:
            for first in range(0, len(topics), TOPICS_IN_A_REQUEST):
                controller.create_topics(topics[first : first + TOPICS_IN_A_REQUEST], TOPIC_PARTITIONS)
        self._cluster.agreed(lambda view: self._led(view) == self._count)
        self._add("create", time.monotonic() - began, "s")
        time.sleep(SETTLE_S)
        for broker in self._brokers:
            self._add("memory of a broker", resident_bytes(broker.pid) / 2**20, "MiB")
        for number in range(self._session.plan.scaled(FAILOVERS, QUICK_FAILOVERS)):
            rest = self._fail_over()
            # Once, as the scrape is itself work that the next figure would contain.
            lags = [lag for broker in rest if number == 0 and (lag := exported_lag(broker)) is not None]
            if lags:
                self._add("longest stall of the last two minutes, as exported", 1e3 * max(lags), "ms")

    def _fail_over(self) -> list[ClusterBroker]:
        """Gives those that it left running."""
        before = self._cluster.agreed(lambda view: self._led(view) == self._count)
        killed = before.controller
        rest = [number for number in range(BROKERS) if number != killed]
        orphans = sum(leader == killed for leader in before.leaders.values())
        settled: dict[int, float] = {}

        def right(view: View) -> bool:
            alone = sum(leader == -1 for leader in view.leaders.values())
            return len(view.leaders) == self._count and view.controller in rest and alone == orphans

        with (
            self._cluster.expiry(killed) as expired,
            probing([self._brokers[number].port for number in rest]) as probes,
        ):
            self._brokers[killed].kill()
            at = expired()
            # First the small question: to describe all partitions is work that the takeover would wait for.
            self._cluster.agreed(lambda view: view.controller in rest, rest, topics=False)
            for number in rest:
                self._cluster.agreed(right, [number])
                settled[number] = time.monotonic()
            time.sleep(SETTLE_S)
        self._add(
            "controller killed: every broker names another, after expiry",
            max(probe.first_names_other_than(killed) for probe in probes) - at,
            "s",
        )
        self._add("controller killed: every partition is right, after expiry", max(settled.values()) - at, "s")
        self._add("controller killed: longest wait for an answer", 1e3 * max(p.longest_wait() for p in probes), "ms")
        self._add(
            "controller killed: memory of the next",
            resident_bytes(self._brokers[self._cluster.view(rest[0]).controller].pid) / 2**20,
            "MiB",
        )
        self._brokers[killed].start()
        return [self._brokers[number] for number in rest]

    def _led(self, view: View) -> int:
        return sum(leader >= 0 for leader in view.leaders.values())

    def _add(self, what: str, value: float, unit: str) -> None:
        title = f"{self._count:,} partitions: {what}"
        self._session.add(self._brokers[0], "cluster", title, value, unit, Better.LOWER)
