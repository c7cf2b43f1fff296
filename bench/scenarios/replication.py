"""Three replicas on three brokers beside Kafka: throughput, latency, catching up, and the end of a leader.

Both clusters are up for the whole scenario and take turns. Whoever makes the load shares the cores with the brokers, so
their processor time is a row of its own.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from bench import clusters, programs
from bench.brokers import CpuWatch
from bench.clusters import BROKERS, Cluster
from bench.machine import resident_bytes
from bench.measures import Better
from bench.replicas import catch_up, producing
from bench.requests import Requester
from bench.session import Session
from braidlog.local_cluster.zookeeper import ZooKeeper

GROUP = "replication"
TARGET_SPEED, TARGET_P99, TARGET_FAILOVER, TARGET_MEMORY = 1.0, 0.7, 0.7, 0.15
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
# Record bytes and batch bytes.
LOADS = (("1 KiB records, 1 MB batches", 1024, 1_000_000), ("100 B records, 16 KiB batches", 100, 16384))
SMALL_BATCH = 16384
LATENCY_RATE = 500
LED_PARTITIONS = 30
MIB = 2**20


def measure(session: Session) -> None:
    session.notes.append(f"{GROUP}: load average before it {os.getloadavg()[0]:.1f}")
    rounds = session.plan.rounds
    with ZooKeeper(properties={"preAllocSize": "16384"}) as zookeeper, ExitStack() as stack:
        runs = []
        for name in session.names:
            session.progress.show(f"{GROUP}: starting {name}")
            cluster = stack.enter_context(clusters.running(session, name, zookeeper, f"{name}-rf3", SETTINGS))
            runs.append(_Run(session, cluster))
        for run in runs:
            session.progress.show(f"{GROUP}: warming up {run.name}")
            run.create_topics()
            for _ in range(session.plan.scaled(3, 1)):
                run.load(record=False)
        for number in range(rounds):
            for run in runs:
                session.progress.show(f"{GROUP}: load, round {number + 1} of {rounds}, {run.name}")
                run.load()
        for run in runs:
            run.memory()
        for number in range(rounds):
            for run in runs:
                session.progress.show(f"{GROUP}: catch-up, round {number + 1} of {rounds}, {run.name}")
                run.catch_up(number)
        for number in range(min(rounds, session.plan.scaled(3, 1))):
            for run in runs:
                session.progress.show(f"{GROUP}: leaders end, round {number + 1}, {run.name}")
                run.shut_down()
                run.kill()
    session.notes.append(f"{GROUP}: load average after it {os.getloadavg()[0]:.1f}")


class _Run:
    """One cluster, loaded in turns with the other."""

    def __init__(self, session: Session, cluster: Cluster) -> None:
        self.name = cluster.name
        self._session = session
        self._cluster = cluster

    def create_topics(self) -> None:
        """One whose partitions each broker leads a third of, one of a single partition, many that move together."""
        view = self._cluster.complete()
        with Requester(self._cluster.brokers[view.controller].port) as controller:
            controller.create_topics(["load"], BROKERS, BROKERS)
            controller.create_topics(["latency"], 1, BROKERS)
            controller.create_topics(["led"], LED_PARTITIONS, BROKERS)
        self._whole()

    def _whole(self) -> None:
        wanted = BROKERS + 1 + LED_PARTITIONS
        self._cluster.agreed(
            lambda view: len(view.leaders) >= wanted and min(view.leaders.values()) >= 0 and not view.under_replicated
        )

    # Speed

    def load(self, record: bool = True) -> None:
        for title, size, batch_bytes in LOADS:
            megabytes = self._session.plan.scaled(400, 100) // (1 if batch_bytes > SMALL_BATCH else 2)
            watch = [CpuWatch(broker) for broker in self._cluster.brokers]
            result = programs.run(
                "load",
                "produce",
                brokers=self._cluster.bootstrap,
                topic="load",
                partitions=BROKERS,
                size=size,
                count=megabytes * 1_000_000 // size,
                batch_bytes=batch_bytes,
                acks=-1,
            )
            cpu = sum(each.seconds() for each in watch)
            if record:
                name = f"acks=all, {title}"
                rate = result["bytes"] / 1e6 / result["seconds"]
                self._add(name, rate, "MB/s", TARGET_SPEED, Better.HIGHER)
                self._add(f"{name}, processor time of the brokers", cpu / (megabytes / 1e3), "CPU s/GB")
        view = self._cluster.complete()
        leader = self._cluster.brokers[view.leaders["latency", 0]]
        seconds = self._session.plan.scaled(8, 3)
        result = programs.run(
            "tiny", "paced", port=leader.port, topic="latency", size=1024, rate=LATENCY_RATE, seconds=seconds
        )
        if record:
            name = f"acks=all at {LATENCY_RATE} requests/s of 1 KiB"
            self._add(f"{name}, p50", result["p50_us"] / 1e3, "ms", TARGET_SPEED)
            self._add(f"{name}, p99", result["p99_us"] / 1e3, "ms", TARGET_P99)

    def memory(self) -> None:
        total = sum(resident_bytes(broker.pid) for broker in self._cluster.brokers)
        self._add("memory of the three brokers after load, resident", total / MIB, "MiB", TARGET_MEMORY)

    def catch_up(self, number: int) -> None:
        rate = catch_up(self._cluster, f"behind-{number}", self._session.plan.scaled(2_000, 300))
        self._add("catch-up of one partition", rate, "MB/s", TARGET_SPEED, Better.HIGHER)

    # The end of a leader

    def shut_down(self) -> None:
        """One that leads the partition which is produced to, and a third of the others."""
        with producing(self._cluster, "latency") as probe:
            leader = self._leader()
            began = time.monotonic()
            self._cluster.brokers[leader].stop()
            ended = time.monotonic()
            moved = probe.first_after(began, other_than=leader)
        self._add("controlled shutdown: until the process has ended", ended - began, "s", TARGET_FAILOVER)
        gap = probe.longest_gap(began, max(ended, moved))
        self._add("controlled shutdown: longest wait of a producer", 1e3 * gap, "ms", TARGET_FAILOVER)
        self._cluster.brokers[leader].start()
        self._whole()

    def kill(self) -> None:
        with producing(self._cluster, "latency") as probe:
            leader = self._leader()
            killed = "leader and controller" if leader == self._cluster.complete().controller else "leader"
            with self._cluster.expiry(leader) as expired:
                began = time.monotonic()
                self._cluster.brokers[leader].kill()
                expired_at = expired()
            acknowledged = probe.first_after(began, other_than=leader)
        self._add(f"{killed} killed: until the next acknowledgement", acknowledged - began, "s", TARGET_FAILOVER)
        after = 1e3 * max(0.0, acknowledged - expired_at)
        self._add(f"{killed} killed: of that, after its session expired", after, "ms", TARGET_FAILOVER)
        self._cluster.brokers[leader].start()
        self._whole()

    def _leader(self) -> int:
        return self._cluster.complete().leaders["latency", 0]

    def _add(
        self, title: str, value: float, unit: str, target: float | None = None, better: Better = Better.LOWER
    ) -> None:
        self._session.add(self._cluster.brokers[0], GROUP, title, value, unit, better, target)
