"""Brokers of a cluster are killed, paused and restarted: what was acknowledged is there when its broker is back."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from braidlog.local_cluster.zookeeper import ZooKeeper, ZooKeeperServer
from braidlog.testing import Cluster, ClusterBroker
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support import confluent
from support.cluster import SESSION_TIMEOUT_MS, agreed_view, start_cluster
from support.cluster_faults import KNOWN_WITHIN_S, controller_of, missed, others, whole
from support.raw import ask

SESSION_S = SESSION_TIMEOUT_MS / 1000
PARTITIONS = 6

_numbers = itertools.count(1)


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic over all brokers; every test leaves all of them running."""
    name = f"orders{next(_numbers)}"
    confluent.create_topic(cluster.bootstrap_servers, name, PARTITIONS)
    whole(cluster, name, PARTITIONS)
    return name


def send(cluster: Cluster, topic: str, name: str) -> None:
    producer = confluent.producer(cluster.bootstrap_servers)
    for partition in range(PARTITIONS):
        producer.produce(topic, f"{name} {partition}", partition=partition)
    assert producer.flush(60) == 0


def received(cluster: Cluster, topic: str) -> list[str]:
    found = []
    for partition in range(PARTITIONS):
        found += [
            message.value().decode() for message in confluent.read_all(cluster.bootstrap_servers, topic, partition)
        ]
    return sorted(found)


def expected(*names: str) -> list[str]:
    return sorted(f"{name} {partition}" for name in names for partition in range(PARTITIONS))


def allocates_producer_id(broker: ClusterBroker) -> int:
    answer = ask(broker.port, "InitProducerId", 2, InitProducerIdRequest(transactional_id=None))
    assert isinstance(answer, InitProducerIdResponse)
    assert answer.error_code == 0
    return int(answer.producer_id)


def test_others_lead_for_a_killed_broker_before_its_session_ends(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> None:
    # Longer than any of this takes.
    settings = {"zookeeper.connect": new_connect(), "zookeeper.session.timeout.ms": "40000"}
    with start_cluster(zookeeper, tmp_path, settings=settings) as cluster:
        client = confluent.admin(cluster.bootstrap_servers)
        client.create_topics([NewTopic("orders", PARTITIONS, 3)])["orders"].result(60)
        before = whole(cluster, "orders", PARTITIONS)
        killed = next(broker for broker in cluster.brokers if broker.id != before.controller)
        assert killed.id in before.leaders["orders"]
        producer = confluent.producer(cluster.bootstrap_servers)
        producer.produce("orders", "before", partition=0)
        assert producer.flush(60) == 0
        killed.kill()
        view = agreed_view(
            others(cluster, killed), lambda view: killed.id not in view.leaders["orders"], within_s=KNOWN_WITHIN_S
        )
        # They would not name it any more if it were not registered.
        assert killed.id in view.brokers
        assert -1 not in view.leaders["orders"]
        for partition in range(PARTITIONS):
            producer.produce("orders", f"after {partition}", partition=partition)
        assert producer.flush(60) == 0
        assert received(cluster, "orders") == sorted(["before", *(f"after {each}" for each in range(PARTITIONS))])


def test_the_controller_is_killed_and_comes_back(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, "before")
    killed = controller_of(cluster)
    rest = others(cluster, killed)
    led_by_killed = {
        index for index, leader in enumerate(whole(cluster, topic, PARTITIONS).leaders[topic]) if leader == killed.id
    }
    killed.kill()
    view = missed(cluster, killed)
    # What it led has no other replica, and the rest is led on.
    leaders = view.leaders[topic]
    assert {index for index, leader in enumerate(leaders) if leader == -1} == led_by_killed
    # The new controller decides: it creates topics and hands out producer ids.
    confluent.create_topic(",".join(each.bootstrap_servers for each in rest), "while-down", 2)
    assert allocates_producer_id(rest[0]) != allocates_producer_id(rest[1])

    killed.start()
    whole(cluster, topic, PARTITIONS)
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", "after")


@pytest.mark.long
def test_every_broker_is_restarted_in_turn(cluster: Cluster, topic: str) -> None:
    names = ["first"]
    send(cluster, topic, "first")
    for broker in cluster.brokers:
        broker.stop()
        agreed_view(others(cluster, broker), lambda view: len(view.brokers) == 2, KNOWN_WITHIN_S)
        broker.start()
        whole(cluster, topic, PARTITIONS)
        names.append(f"after {broker.id}")
        send(cluster, topic, names[-1])
    assert received(cluster, topic) == expected(*names)


def test_the_whole_cluster_is_killed_and_restarted(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, "before")
    for broker in cluster.brokers:
        broker.kill()
    # Within the sessions of those that died: they wait for these to end.
    cluster.start()
    whole(cluster, topic, PARTITIONS)
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", "after")


@pytest.mark.parametrize("which", ["the controller", pytest.param("another", marks=pytest.mark.long)])
def test_a_broker_is_paused_past_its_session(cluster: Cluster, topic: str, which: str) -> None:
    send(cluster, topic, "before")
    controller = controller_of(cluster)
    paused = controller if which == "the controller" else others(cluster, controller)[0]
    lives = paused.log(1000).count("registered again")
    paused.pause()
    missed(cluster, paused)
    paused.resume()
    # A new session, a new registration; an old controller does not take itself for one any more.
    whole(cluster, topic, PARTITIONS, SESSION_S + KNOWN_WITHIN_S)
    assert paused.log(1000).count("registered again") > lives
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", "after")


def sent_while(cluster: Cluster, topic: str, seconds: float) -> list[str]:
    """Records go on to be acknowledged for so long."""
    ends = time.monotonic() + seconds
    names: list[str] = []
    while time.monotonic() < ends:
        names.append(f"down {len(names)}")
        send(cluster, topic, names[-1])
    return names


def test_produce_goes_on_while_the_ensemble_is_silent(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, "before")
    cluster.zookeeper.each(ZooKeeperServer.pause)
    try:
        names = sent_while(cluster, topic, 2 * SESSION_S)
    finally:
        cluster.zookeeper.each(ZooKeeperServer.resume)
    whole(cluster, topic, PARTITIONS, SESSION_S + KNOWN_WITHIN_S)
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", *names, "after")


@pytest.mark.long
def test_a_minute_without_the_ensemble_fails_no_produce(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, "before")
    cluster.zookeeper.each(ZooKeeperServer.stop)
    try:
        names = sent_while(cluster, topic, 60)
    finally:
        cluster.zookeeper.start()
    whole(cluster, topic, PARTITIONS, SESSION_S + KNOWN_WITHIN_S)
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", *names, "after")
