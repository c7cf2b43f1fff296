"""Transactions and group joins a second over three brokers on one ZooKeeper, each broker a coordinator of a third.

A transaction writes to a partition of every broker and sends an offset of a group. Its coordinator, the coordinator
of its group and the leaders of its partitions are on all three: its markers and offsets go between brokers. Both
clusters are up for the whole scenario and take turns. Whoever makes the load shares the cores with the brokers, so the
processor time of the brokers is a row of its own.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import uvloop

from bench import clusters, group_members
from bench.brokers import CpuWatch
from bench.clusters import BROKERS, Cluster
from bench.group_members import GROUP, TRANSACTION, Joins
from bench.measures import Better
from bench.requests import Requester
from bench.session import Session
from braidlog.local_cluster.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

TOPIC = "transactions"
RECORD = b"x" * 100
PRODUCERS = 9
GROUPS = 30
MEMBERS = 3
TIMEOUT_S = 60
# The same for both kinds: one copy of everything, and no wait of a new group for more members.
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def measure(session: Session) -> None:
    session.notes.append(f"coordinators: load average before it {os.getloadavg()[0]:.1f}")
    warm_up, seconds = session.plan.scaled(10, 3), session.plan.scaled(8, 4)
    with ZooKeeper(properties={"preAllocSize": "16384"}) as zookeeper, ExitStack() as stack:
        runs = []
        for name in session.names:
            session.progress.show(f"coordinators: starting {name}")
            cluster = stack.enter_context(clusters.running(session, name, zookeeper, name, SETTINGS))
            runs.append(_Run(session, cluster))
        for run in runs:
            session.progress.show(f"coordinators: warming up {run.name}")
            run.measure(warm_up, record=False)
        for number in range(session.plan.rounds):
            for run in runs:
                session.progress.show(f"coordinators: round {number + 1} of {session.plan.rounds}, {run.name}")
                run.measure(seconds)
        for run in runs:
            run.finish()
    session.notes.append(f"coordinators: load average after it {os.getloadavg()[0]:.1f}")


class _Run:
    """One cluster, and the programs that load it."""

    def __init__(self, session: Session, cluster: Cluster) -> None:
        self.name = cluster.name
        self._session = session
        self._cluster = cluster
        self._create_topic()
        ports = [broker.port for broker in cluster.brokers]
        own = PRODUCERS // BROKERS
        groups = _run(group_members.spread(ports, GROUP, own + GROUPS // BROKERS))
        ids = _run(group_members.spread(ports, TRANSACTION, own))
        # The group of a producer is coordinated by the broker after the one that coordinates its transactions.
        self._transactors = [
            _transactor(cluster.bootstrap, ids[broker][number], groups[(broker + 1) % BROKERS][number])
            for broker in range(BROKERS)
            for number in range(own)
        ]
        self._groups = [(port, group) for port, found in zip(ports, groups, strict=True) for group in found[own:]]

    def _create_topic(self) -> None:
        """One partition a broker."""
        view = self._cluster.complete()
        with Requester(self._cluster.brokers[view.controller].port) as controller:
            controller.create_topics([TOPIC], BROKERS)
        partitions = range(BROKERS)
        self._cluster.agreed(
            lambda view: {view.leaders.get((TOPIC, each), -1) for each in partitions} == set(partitions)
        )

    def measure(self, seconds: float, record: bool = True) -> None:
        """Every kind of load for so long."""
        self._transactions(self._transactors[:1], seconds, record)
        self._transactions(self._transactors, seconds, record)
        watch = self._watch()
        joins = _run(group_members.come_and_go(self._groups, seconds))
        self._joins(f"joins, {GROUPS} groups of one member that comes and goes", joins, watch, record)
        started: list[list[CpuWatch]] = []
        joins = _run(group_members.rebalances(self._groups, MEMBERS, lambda: started.append(self._watch()), seconds))
        self._joins(f"joins, {GROUPS} groups of {MEMBERS} members that rebalance", joins, started[0], record)

    def _transactions(self, transactors: list[_Transactor], seconds: float, record: bool) -> None:
        watch = self._watch()
        began = time.monotonic()
        with ThreadPoolExecutor(len(transactors)) as threads:
            taken = [each for run in threads.map(lambda one: one.run(began + seconds), transactors) for each in run]
        elapsed, cpu = time.monotonic() - began, _cpu_seconds(watch)
        if not record:
            return
        title = f"transactions, {len(transactors)} producer{'s' * (len(transactors) > 1)}"
        self._add(title, len(taken) / elapsed, "1/s", Better.HIGHER)
        self._add(f"{title}, p50", statistics.median(taken) * 1e3, "ms")
        self._add(f"{title}, p99", statistics.quantiles(taken, n=100)[98] * 1e3, "ms")
        self._add(f"{title}, processor time of the brokers", cpu / len(taken) * 1e3, "CPU ms each")

    def _joins(self, title: str, joins: Joins, watch: list[CpuWatch], record: bool) -> None:
        cpu = _cpu_seconds(watch)
        if record:
            self._add(title, joins.members / joins.seconds, "1/s", Better.HIGHER)
            self._add(f"{title}, processor time of the brokers", cpu / joins.members * 1e3, "CPU ms each")

    def finish(self) -> None:
        """Check that the offsets which were sent are those committed, and close the clients before the brokers go."""
        while self._transactors:
            self._transactors.pop().check()

    def _watch(self) -> list[CpuWatch]:
        return [CpuWatch(broker) for broker in self._cluster.brokers]

    def _add(self, title: str, value: float, unit: str, better: Better = Better.LOWER) -> None:
        self._session.add(self._cluster.brokers[0], "coordinators", title, value, unit, better)


def _cpu_seconds(watch: list[CpuWatch]) -> float:
    return sum(broker.seconds() for broker in watch)


T = TypeVar("T")


def _run(work: Coroutine[None, None, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@dataclass(slots=True)
class _Transactor:
    """A transactional producer of librdkafka, and the group whose offset it sends."""

    producer: Producer
    consumer: Consumer
    sent: int = 0

    def run(self, until: float) -> list[float]:
        """Seconds of each transaction, from its beginning to the answer that it is committed."""
        from confluent_kafka import TopicPartition

        group = self.consumer.consumer_group_metadata()
        taken: list[float] = []
        while time.monotonic() < until:
            began = time.monotonic()
            self.producer.begin_transaction()
            for partition in range(BROKERS):
                self.producer.produce(TOPIC, RECORD, partition=partition)
            offset = TopicPartition(TOPIC, 0, self.sent + 1)
            self.producer.send_offsets_to_transaction([offset], group, TIMEOUT_S)
            self.producer.commit_transaction(TIMEOUT_S)
            self.sent += 1
            taken.append(time.monotonic() - began)
        return taken

    def check(self) -> None:
        from confluent_kafka import TopicPartition

        (found,) = self.consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
        if found.offset != self.sent:
            raise AssertionError(f"{self.sent} transactions were committed, and the offset is {found.offset}")
        self.consumer.close()


def _transactor(bootstrap: str, transactional_id: str, group: str) -> _Transactor:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    return _Transactor(producer, Consumer({"bootstrap.servers": bootstrap, "group.id": group}))
