"""Three brokers on one ZooKeeper with very many partitions of two replicas: the days of an operator.

Topics are created, a thousand partitions are moved to another broker while records are written to one of them, the
controller is killed, and all brokers are stopped and started. Meanwhile a process for each broker asks it a small
question every few milliseconds: the longest wait is how long that broker served nobody.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from bench import clusters, programs
from bench.clusters import BROKERS, Cluster
from bench.machine import resident_bytes
from bench.measures import KAFKA, Better
from bench.probes import exported_lag, probing
from bench.requests import Requester, View
from bench.session import Session
from braidlog.client import TopicPartition
from braidlog.client.admin import Admin
from braidlog.local_cluster.zookeeper import ZooKeeper

GROUP = "large_cluster"
PARTITIONS, QUICK_PARTITIONS = 10_000, 2_000
# Of one topic, which has the data.
MOVED, QUICK_MOVED = 1_000, 200
MOVED_TOPIC = "moved"
# Of one partition, which is written to while it moves with the others.
BUSY_TOPIC = "busy"
TOPIC_PARTITIONS = 10
TOPICS_IN_A_REQUEST = 100
REPLICAS = 2
# 100 KB in each of the partitions that are moved.
RECORD_BYTES, RECORDS_EACH = 1_000, 100
RATE, WARM_SECONDS = 200, 1.0
SETTLE_S = 2.0
POLL_S = 0.1
TIMEOUT_S = 600.0
# The longest that anybody waits.
STALL_MS = 50.0


def measure(session: Session) -> None:
    session.notes.append(f"{GROUP}: load average before it {os.getloadavg()[0]:.1f}")
    count = session.plan.scaled(PARTITIONS, QUICK_PARTITIONS)
    with ZooKeeper(properties={"preAllocSize": "16384"}) as zookeeper:
        for name in session.names:
            partitions = count
            if name == KAFKA and session.plan.scale_peer_partitions < count:
                partitions = QUICK_PARTITIONS
                session.notes.append(f"{GROUP}: Kafka is measured with {partitions:,} partitions")
            for each in sorted({partitions, QUICK_PARTITIONS}):
                session.progress.show(f"{GROUP}: {each:,} partitions, {name}")
                with clusters.running(session, name, zookeeper, f"{name}-large-{each}") as cluster:
                    moved = QUICK_MOVED if each == QUICK_PARTITIONS else MOVED
                    _Run(session, cluster, each, moved).measure()


class _Run:
    def __init__(self, session: Session, cluster: Cluster, count: int, moved: int) -> None:
        self._session = session
        self._cluster = cluster
        self._brokers = cluster.brokers
        self._count = count
        self._moved = moved

    def measure(self) -> None:
        self._create()
        time.sleep(SETTLE_S)
        for broker in self._brokers:
            self._add("memory of a broker", resident_bytes(broker.pid) / 2**20, "MiB")
        self._move()
        self._fail_over()
        self._restart()

    def _create(self) -> None:
        view = self._cluster.complete()
        topics = [f"topic-{number:04}" for number in range((self._count - self._moved) // TOPIC_PARTITIONS)]
        began = time.monotonic()
        with (
            probing([broker.port for broker in self._brokers]) as probes,
            Requester(self._brokers[view.controller].port) as controller,
        ):
            controller.create_topics([MOVED_TOPIC], self._moved, REPLICAS)
            controller.create_topics([BUSY_TOPIC], 1, REPLICAS)
            for first in range(0, len(topics), TOPICS_IN_A_REQUEST):
                controller.create_topics(topics[first : first + TOPICS_IN_A_REQUEST], TOPIC_PARTITIONS, REPLICAS)
            self._cluster.agreed(self._is_whole)
            self._add("create, until all are in sync", time.monotonic() - began, "s")
        self._add_wait("create", max(each.longest_wait() for each in probes))

    def _move(self) -> None:
        """Each partition loses its leader to the broker that has no replica of it."""
        where: dict[str, programs.Option] = {"brokers": self._cluster.bootstrap}
        count = self._moved * RECORDS_EACH
        programs.run(
            "load", "produce", size=RECORD_BYTES, count=count, topic=MOVED_TOPIC, partitions=self._moved, **where
        )
        paced: dict[str, programs.Option] = {"rate": RATE, "seconds": 0, "warm_seconds": WARM_SECONDS}
        with (
            Admin(bootstrap_servers=self._cluster.bootstrap, client_id="bench-admin") as admin,
            probing([broker.port for broker in self._brokers]) as probes,
            programs.started("load", "latency", size=RECORD_BYTES, topic=BUSY_TOPIC, **paced, **where) as latency,
        ):
            targets = {}
            for topic, described in admin.describe_topics([MOVED_TOPIC, BUSY_TOPIC]).items():
                for partition in described.partitions:
                    leader, follower = partition.replicas
                    (other,) = {*range(BROKERS)} - {leader, follower}
                    targets[TopicPartition(topic, partition.partition)] = [other, follower]
            time.sleep(WARM_SECONDS + SETTLE_S)
            began = time.monotonic()
            admin.alter_partition_reassignments(targets).raise_for_errors()
            while admin.list_partition_reassignments():
                if time.monotonic() > began + TIMEOUT_S:
                    raise TimeoutError(f"the move of {len(targets):,} partitions takes longer than {TIMEOUT_S:.0f} s")
                time.sleep(POLL_S)
            self._add(f"{self._moved:,} partitions moved", time.monotonic() - began, "s")
            written = programs.finish(latency)
        self._add_wait(f"{self._moved:,} partitions moved", max(each.longest_wait() for each in probes))
        for percentile in ("p50", "p99"):
            value = written[f"produce_{percentile}_us"] / 1e3
            self._add(f"acknowledgement by one that moves, {percentile}", value, "ms")

    def _fail_over(self) -> None:
        killed = self._cluster.agreed(self._is_whole).controller
        rest = [number for number in range(BROKERS) if number != killed]

        def right(view: View) -> bool:
            return self._are_led(view) and killed not in view.leaders.values()

        with (
            self._cluster.expiry(killed) as expired,
            probing([self._brokers[number].port for number in rest]) as probes,
        ):
            self._brokers[killed].kill()
            at = expired()
            self._cluster.agreed(right, rest)
            self._add("controller killed: every partition has a leader, after expiry", time.monotonic() - at, "s")
            time.sleep(SETTLE_S)
        self._add_wait("controller killed", max(each.longest_wait() for each in probes))
        self._brokers[killed].start()
        self._cluster.agreed(self._is_whole)

    def _restart(self) -> None:
        """As an operator does it who wants the whole cluster down."""
        lags = [lag for broker in self._brokers if (lag := exported_lag(broker)) is not None]
        if lags:
            self._add("longest stall of the last two minutes, as exported", 1e3 * max(lags), "ms")
        began = time.monotonic()
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(lambda broker: broker.stop(), self._brokers))
        self._add("all brokers stopped at once", time.monotonic() - began, "s")
        began = time.monotonic()
        for broker in self._brokers:
            broker.start()
        self._add("started one after the other: each answers", time.monotonic() - began, "s")
        self._cluster.agreed(self._is_whole)
        self._add("started one after the other: every partition is in sync", time.monotonic() - began, "s")

    def _is_whole(self, view: View) -> bool:
        return self._are_led(view) and not view.under_replicated

    def _are_led(self, view: View) -> bool:
        """Also the one of the busy topic, but not the groups' own, which librdkafka's consumer has made."""
        own = [leader for (topic, _), leader in view.leaders.items() if not topic.startswith("__")]
        return len(own) == self._count + 1 and min(own) >= 0

    def _add(self, what: str, value: float, unit: str, limit: float | None = None) -> None:
        title = f"{self._count:,} partitions: {what}"
        self._session.add(self._brokers[0], GROUP, title, value, unit, Better.LOWER, limit=limit)

    def _add_wait(self, when: str, seconds: float) -> None:
        self._add(f"{when}: longest wait for an answer", 1e3 * seconds, "ms", STALL_MS)
