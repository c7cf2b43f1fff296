"""Three brokers, three replicas, two of which must have a record before it is acknowledged: nothing of that is lost."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from braidlog.testing import Cluster, ClusterBroker
from braidlog.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from support import confluent
from support.cluster import agreed_view
from support.cluster_faults import KNOWN_WITHIN_S, others
from support.eventually import eventually
from support.raw import ask

PARTITIONS = 3
IN_SYNC_WITHIN_S = 30.0
_numbers = itertools.count(1)


def partitions_of(broker: ClusterBroker, topic: str) -> list[MetadataResponsePartition]:
    wanted = [MetadataRequestTopic(name=topic)]
    answer = ask(broker.port, "Metadata", 9, MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    assert isinstance(answer, MetadataResponse)
    return sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)


def all_in_sync(cluster: Cluster, topic: str) -> None:
    eventually(
        lambda: all(len(each.isr_nodes) == 3 for broker in cluster.brokers for each in partitions_of(broker, topic)),
        IN_SYNC_WITHIN_S,
    )


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"copied{next(_numbers)}"
    new = NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([new])[name].result(30)
    agreed_view(cluster.brokers, lambda view: len(set(view.leaders.get(name, ()))) == 3, KNOWN_WITHIN_S)
    all_in_sync(cluster, name)
    return name


class Writer:
    """Sends numbered records with acks=all, idempotently, until it is stopped."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = confluent.producer(
            cluster.bootstrap_servers, **{"enable.idempotence": True, "acks": "all", "delivery.timeout.ms": 60_000}
        )
        self._topic = topic
        self._stopping = threading.Event()
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.failed: list[str] = []

    def run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                break
            value = str(number).encode()
            self._producer.produce(
                self._topic,
                value,
                partition=number % PARTITIONS,
                on_delivery=lambda error, sent: self._done(error, sent),
            )
            self._producer.poll(0.002)
        self._producer.flush(60)

    def _done(self, error: object, sent: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append((sent.partition(), sent.offset(), sent.value()))  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._stopping.set()


@contextmanager
def writing(cluster: Cluster, topic: str) -> Iterator[Writer]:
    writer = Writer(cluster, topic)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        thread.join(120)


def acknowledges_more(writer: Writer, within_s: float = 60.0) -> None:
    """Of every partition."""
    before = len(writer.acknowledged)
    eventually(
        lambda: {partition for partition, _, _ in writer.acknowledged[before:]} == set(range(PARTITIONS)), within_s
    )


def nothing_is_lost_or_doubled(cluster: Cluster, topic: str, writer: Writer) -> None:
    assert writer.failed == []
    found = {
        (partition, message.offset()): message.value()
        for partition in range(PARTITIONS)
        for message in confluent.read_all(cluster.bootstrap_servers, topic, partition)
    }
    assert [each for each in writer.acknowledged if found.get(each[:2]) != each[2]] == []
    assert len(set(found.values())) == len(found)


def test_a_leader_is_killed_and_nothing_acknowledged_is_lost(cluster: Cluster, topic: str) -> None:
    with writing(cluster, topic) as writer:
        acknowledges_more(writer)
        killed = cluster.brokers[partitions_of(cluster.brokers[0], topic)[0].leader_id]
        killed.kill()
        agreed_view(others(cluster, killed), lambda view: killed.id not in view.brokers, KNOWN_WITHIN_S)
        acknowledges_more(writer)
        rest = others(cluster, killed)[0]
        assert all(killed.id not in each.isr_nodes for each in partitions_of(rest, topic))
        killed.start()
        all_in_sync(cluster, topic)
        acknowledges_more(writer)
    nothing_is_lost_or_doubled(cluster, topic, writer)


def test_a_broker_that_stops_hands_its_leaders_over_first(cluster: Cluster, topic: str) -> None:
    with writing(cluster, topic) as writer:
        acknowledges_more(writer)
        stopped = cluster.brokers[partitions_of(cluster.brokers[0], topic)[1].leader_id]
        rest = others(cluster, stopped)
        stopped.stop()
        # At once: no session had to end for that.
        leaders = [each.leader_id for each in partitions_of(rest[0], topic)]
        assert stopped.id not in leaders
        assert -1 not in leaders
        acknowledges_more(writer)
        stopped.start()
        all_in_sync(cluster, topic)
    nothing_is_lost_or_doubled(cluster, topic, writer)
