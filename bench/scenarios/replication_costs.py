"""What replication costs one event loop: sessions of very many partitions, catching up, and roles that change.

The costs of a fetch are processor time of the leader, which serves a follower by hand (`bench/follower.py`) and nobody
else. The others are seen from outside, on three brokers that only this has. No Kafka runs beside any of it.
"""

from __future__ import annotations

import os
import time

from bench import clusters, programs
from bench.brokers import Broker
from bench.clusters import BROKERS, Cluster
from bench.follower import HandFollower, register
from bench.machine import cpu_nanoseconds
from bench.measures import BRAIDLOG, KAFKA, Better
from bench.probes import exported_lag, probing
from bench.replicas import catch_up, one_record
from bench.requests import Requester, View
from bench.session import Session
from braidlog.local_cluster.zookeeper import ZooKeeper

GROUP = "replication_costs"
PARTITIONS, QUICK_PARTITIONS = 10_000, 2_000
# As a follower of ours names them: so many in a request.
NAMED_AT_A_TIME = 1_000
CHANGED = 1_000
HAND_FOLLOWER = 9
TOPIC_PARTITIONS = 10
TOPICS_IN_A_REQUEST = 100
FETCH_WAIT_MS = 500
IDLE_RATE = 50
SETTLE_S = 3.0
LIMITS = {
    "fetch": 100.0,
    "idle": 1.0,
    "changed": 5.0,
    "latency": 1.5,
    "catch up": 400.0,
    "roles": 5.0,
    "stall": 50.0,
}


def measure(session: Session) -> None:
    session.notes.append(f"{GROUP}: load average before it {os.getloadavg()[0]:.1f}")
    names = [name for name in session.names if name != KAFKA] or [BRAIDLOG]
    partitions = session.plan.scaled(PARTITIONS, QUICK_PARTITIONS)
    with ZooKeeper(properties={"preAllocSize": "16384"}) as zookeeper:
        for name in names:
            session.progress.show(f"{GROUP}: sessions, {name}")
            with clusters.running(session, name, zookeeper, f"{name}-sessions", count=1) as cluster:
                _Sessions(session, cluster, partitions).measure()
            session.progress.show(f"{GROUP}: three replicas, {name}")
            with clusters.running(session, name, zookeeper, f"{name}-replicas") as cluster:
                _latency(session, cluster)
                for number in range(session.plan.rounds):
                    rate = catch_up(cluster, f"behind-{number}", session.plan.scaled(2_000, 400))
                    title = "catch-up of one partition"
                    session.add(cluster.brokers[0], GROUP, title, rate, "MB/s", Better.HIGHER, limit=LIMITS["catch up"])
            session.progress.show(f"{GROUP}: {partitions:,} partitions of three replicas, {name}")
            with clusters.running(session, name, zookeeper, f"{name}-roles") as cluster:
                _Roles(session, cluster, partitions).measure()
    session.notes.append(f"{GROUP}: load average after it {os.getloadavg()[0]:.1f}")


def _add(session: Session, broker: Broker, title: str, value: float, unit: str, limit: str | None = None) -> None:
    bound = None if limit is None else LIMITS[limit]
    session.add(broker, GROUP, title, value, unit, Better.LOWER, limit=bound)


class _Sessions:
    """One leader of one topic, and a follower that has all of its partitions in its session."""

    def __init__(self, session: Session, cluster: Cluster, partitions: int) -> None:
        self._session = session
        self._cluster = cluster
        (self._leader,) = cluster.brokers
        self._partitions = partitions

    def measure(self) -> None:
        self._cluster.complete()
        with self._cluster.store() as store:
            epoch = register(store, HAND_FOLLOWER)
            self._cluster.agreed(lambda view: HAND_FOLLOWER in view.brokers)
            with Requester(self._leader.port) as requester:
                requester.create_topic_on("session", self._partitions, (0, HAND_FOLLOWER))
                requester.await_leaders("session", self._partitions)
                with HandFollower(self._leader.port, HAND_FOLLOWER, epoch, "session") as follower:
                    for first in range(0, self._partitions, NAMED_AT_A_TIME):
                        follower.fetch(range(first, min(first + NAMED_AT_A_TIME, self._partitions)))
                    for _ in range(self._session.plan.rounds):
                        self._idle(follower)
                        self._changed(follower, requester)

    def _idle(self, follower: HandFollower) -> None:
        title = f"idle session of {self._partitions:,} partitions"
        while follower.fetch():
            pass
        count = self._session.plan.scaled(10_000, 3_000)
        before = self._cpu()
        for _ in range(count):
            follower.fetch()
        _add(self._session, self._leader, f"{title}, a fetch", (self._cpu() - before) / 1e3 / count, "µs", "fetch")
        waits = self._session.plan.scaled(20, 6)
        before, began = self._cpu(), time.monotonic()
        for _ in range(waits):
            follower.fetch(wait_ms=FETCH_WAIT_MS)
        share = (self._cpu() - before) / 1e9 / (time.monotonic() - began)
        _add(self._session, self._leader, f"{title}, CPU of the leader", 100 * share, "%", "idle")

    def _changed(self, follower: HandFollower, requester: Requester) -> None:
        """A record each: it is fetched, and the next fetch tells that it is there, which commits it."""
        count = min(CHANGED, self._partitions)
        records = one_record()
        spent = {"with a record": 0, "that the follower has by now": 0}
        repeats = self._session.plan.scaled(20, 5)
        for _ in range(repeats):
            if errors := requester.produce("session", range(count), records, acks=1):
                raise AssertionError(f"Produce answered with {errors}")
            before = self._cpu()
            assert follower.fetch() == count, "each partition has a record"
            fetched = self._cpu()
            assert follower.fetch(range(count)) == count, "each partition has another high watermark"
            spent["with a record"] += fetched - before
            spent["that the follower has by now"] += self._cpu() - fetched
            follower.fetch()
        for what, nanoseconds in spent.items():
            title = f"a fetch, each changed partition: {what}"
            _add(self._session, self._leader, title, nanoseconds / 1e3 / repeats / count, "µs", "changed")

    def _cpu(self) -> int:
        return cpu_nanoseconds(self._leader.pid)


def _latency(session: Session, cluster: Cluster) -> None:
    view = cluster.complete()
    with Requester(cluster.brokers[view.controller].port) as controller:
        controller.create_topics(["latency"], 1, BROKERS)
    view = cluster.agreed(lambda view: view.leaders.get(("latency", 0), -1) >= 0 and not view.under_replicated)
    leader = cluster.brokers[view.leaders["latency", 0]]
    with Requester(leader.port) as requester:
        requester.await_leaders("latency", 1)
    for _ in range(session.plan.rounds):
        seconds = session.plan.scaled(10, 4)
        result = programs.run(
            "tiny", "paced", port=leader.port, topic="latency", size=100, rate=IDLE_RATE, seconds=seconds
        )
        title = f"acks=all, three replicas, {IDLE_RATE} requests/s"
        _add(session, leader, f"{title}, p50", result["p50_us"] / 1e3, "ms", "latency")
        _add(session, leader, f"{title}, p99", result["p99_us"] / 1e3, "ms")


class _Roles:
    """Three brokers with a replica of every partition; one is killed, and comes back."""

    def __init__(self, session: Session, cluster: Cluster, count: int) -> None:
        self._session = session
        self._cluster = cluster
        self._brokers = cluster.brokers
        self._count = count

    def measure(self) -> None:
        view = self._cluster.complete()
        topics = [f"topic-{number:04}" for number in range(self._count // TOPIC_PARTITIONS)]
        began = time.monotonic()
        with (
            probing([broker.port for broker in self._brokers]) as probes,
            Requester(self._brokers[view.controller].port) as controller,
        ):
            for first in range(0, len(topics), TOPICS_IN_A_REQUEST):
                controller.create_topics(topics[first : first + TOPICS_IN_A_REQUEST], TOPIC_PARTITIONS, BROKERS)
            self._cluster.agreed(self._is_whole)
            self._add("created and in sync", time.monotonic() - began, "s")
        self._add("created: longest wait for an answer", 1e3 * max(each.longest_wait() for each in probes), "ms")
        self._idle()
        view = self._cluster.complete()
        self._fail_over(next(number for number in range(BROKERS) if number != view.controller))
        for broker in self._brokers:
            lag = exported_lag(broker)
            if lag is not None:
                self._add("longest stall of a broker, as exported", 1e3 * lag, "ms", "stall")

    def _idle(self) -> None:
        """Each leads a third and follows the others."""
        time.sleep(SETTLE_S)
        seconds = self._session.plan.scaled(20, 5)
        before = [cpu_nanoseconds(broker.pid) for broker in self._brokers]
        time.sleep(seconds)
        for broker, then in zip(self._brokers, before, strict=True):
            share = (cpu_nanoseconds(broker.pid) - then) / 1e9 / seconds
            self._add("CPU of an idle broker", 100 * share, "%")

    def _fail_over(self, killed: int) -> None:
        rest = [number for number in range(BROKERS) if number != killed]

        def right(view: View) -> bool:
            return self._led(view) == self._count and killed not in view.leaders.values()

        with (
            self._cluster.expiry(killed) as expired,
            probing([self._brokers[number].port for number in rest]) as probes,
        ):
            self._brokers[killed].kill()
            at = expired()
            self._cluster.agreed(right, rest)
            self._add(
                "a broker killed: every partition has a leader, after expiry", time.monotonic() - at, "s", "roles"
            )
            time.sleep(SETTLE_S)
        longest = 1e3 * max(each.longest_wait() for each in probes)
        self._add("a broker killed: longest wait for an answer", longest, "ms", "stall")
        with probing([self._brokers[number].port for number in rest]) as probes:
            self._brokers[killed].start()
            began = time.monotonic()
            self._cluster.agreed(self._is_whole)
            self._add("it is back: every partition is in sync, after its start", time.monotonic() - began, "s", "roles")
        longest = 1e3 * max(each.longest_wait() for each in probes)
        self._add("it is back: longest wait for an answer", longest, "ms", "stall")

    def _is_whole(self, view: View) -> bool:
        return self._led(view) == self._count and not view.under_replicated

    def _led(self, view: View) -> int:
        return sum(leader >= 0 for leader in view.leaders.values())

    def _add(self, what: str, value: float, unit: str, limit: str | None = None) -> None:
        title = f"{self._count:,} partitions of three replicas: {what}"
        _add(self._session, self._brokers[0], title, value, unit, limit)
