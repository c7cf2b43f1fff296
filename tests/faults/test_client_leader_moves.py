"""Our producer and consumer on a cluster of three Apache Kafka brokers while leaders move and die.

With acks=all and idempotence every acknowledged record is there once and in order, and is read so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from braidlog.client.admin import Admin, NewTopic
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.producer import Producer
from braidlog.core.types import TopicPartition
from support import confluent
from support.eventually import eventually
from support.kafka_cluster import NODES, KafkaCluster, start_kafka_cluster

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

PARTITIONS = 3
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def cluster(apache_kafka: object) -> Iterator[KafkaCluster]:
    with start_kafka_cluster() as running:
        yield running


@pytest.fixture
def replicated(cluster: KafkaCluster, topic: str) -> str:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)]).raise_for_errors()
    eventually(lambda: set(leaders(cluster, topic)) <= set(NODES))
    return topic


def leaders(cluster: KafkaCluster, topic: str) -> list[int]:
    found = confluent.admin(cluster.bootstrap).list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    return [found[number].leader if number in found else -1 for number in range(PARTITIONS)]


class Traffic:
    """Numbers go in by one thread and come out by another, per partition."""

    def __init__(self, cluster: KafkaCluster, topic: str, **settings: Any) -> None:
        self.topic = topic
        self.sent: list[list[Delivery]] = [[] for _ in range(PARTITIONS)]
        self.seen: list[list[int]] = [[] for _ in range(PARTITIONS)]
        quick = {"bootstrap_servers": cluster.bootstrap, "reconnect_backoff_max_ms": 200, "request_timeout_ms": 10_000}
        self.producer = Producer(**quick, acks="all", linger_ms=2)
        self.consumer = Consumer(**quick, auto_offset_reset="earliest", **settings)
        self.consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        self.problem: BaseException | None = None
        self._stop = threading.Event()
        self._stop_reading = threading.Event()
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        while not self._stop.wait(0.002):
            for number, row in enumerate(self.sent):
                row.append(self.producer.send(self.topic, b"%d" % len(row), partition=number))

    def _read(self) -> None:
        try:
            while not self._stop_reading.is_set():
                for record in self.consumer.poll(0.2):
                    self.seen[record.partition].append(int(record.value))
        except BaseException as problem:
            self.problem = problem

    @property
    def read(self) -> int:
        return sum(map(len, self.seen))

    def flows(self) -> None:
        """Something new comes out of every partition."""
        before = [len(each) for each in self.seen]
        eventually(
            lambda: (
                all(len(now) > then for now, then in zip(self.seen, before, strict=True)) or self.problem is not None
            ),
            DEADLINE_S,
        )
        assert self.problem is None, repr(self.problem)

    def finish(self) -> None:
        """Everything that was sent is acknowledged, and read once and in order."""
        self._stop.set()
        self._threads[0].join()
        self.producer.flush(DEADLINE_S)
        try:
            total = sum(len(row) for row in self.sent)
            for row in self.sent:
                offsets = [delivery.result(0).offset for delivery in row]
                assert offsets == sorted(set(offsets))
            eventually(lambda: self.read >= total or self.problem is not None, DEADLINE_S)
            assert self.problem is None, repr(self.problem)
        finally:
            self._stop_reading.set()
            self._threads[1].join()
            self.producer.close(10)
            self.consumer.close(10)
        assert self.seen == [list(range(len(row))) for row in self.sent]


def test_leaders_that_are_moved_by_order(cluster: KafkaCluster, replicated: str) -> None:
    traffic = Traffic(cluster, replicated)
    traffic.flows()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for turn in range(3):
            targets = {
                TopicPartition(replicated, number): [NODES[(number + turn + at) % 3] for at in range(3)]
                for number in range(PARTITIONS)
            }
            admin.alter_partition_reassignments(targets).raise_for_errors()
            # Whoever is first among the replicas leads after an election of the preferred.
            for each in targets:
                admin.elect_leaders([each])
            wanted = [brokers[0] for brokers in targets.values()]
            eventually(lambda wanted=wanted: leaders(cluster, replicated) == wanted, DEADLINE_S)  # type: ignore[misc]
            traffic.flows()
    traffic.finish()


def test_leaders_that_are_killed(cluster: KafkaCluster, replicated: str) -> None:
    traffic = Traffic(cluster, replicated)
    traffic.flows()
    victim = leaders(cluster, replicated)[0]
    cluster.kill(victim)
    eventually(lambda: victim not in leaders(cluster, replicated), DEADLINE_S)
    traffic.flows()
    cluster.start(victim)
    traffic.flows()
    traffic.finish()


def test_a_replica_in_the_readers_rack(cluster: KafkaCluster, replicated: str) -> None:
    traffic = Traffic(cluster, replicated, client_rack="rack-2")
    traffic.flows()
    states = traffic.consumer._subscription.states()
    eventually(
        lambda: {each.read_replica for each in states} <= {2, -1} and any(each.read_replica == 2 for each in states)
    )
    started = time.monotonic()
    traffic.flows()
    assert time.monotonic() - started < DEADLINE_S
    traffic.finish()
