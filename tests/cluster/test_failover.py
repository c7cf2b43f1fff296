"""Brokers of a cluster are killed, paused and restarted: what was acknowledged is there when its broker is back."""

from __future__ import annotations

import itertools
import time

import pytest

from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support import confluent
from support.cluster import SESSION_TIMEOUT_MS, Cluster, ClusterBroker, View, agreed_view
from support.raw import ask

SESSION_S = SESSION_TIMEOUT_MS / 1000
# After a death is noticed, which takes the session timeout and ZooKeeper's next look at it.
KNOWN_WITHIN_S = 10.0
PARTITIONS = 6

_numbers = itertools.count(1)


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic over all brokers; every test leaves all of them running."""
    name = f"orders{next(_numbers)}"
    confluent.create_topic(cluster.bootstrap, name, PARTITIONS)
    whole(cluster, name)
    return name


def whole(cluster: Cluster, topic: str, within_s: float = KNOWN_WITHIN_S) -> View:
    """What all three brokers say once they are there and lead all partitions."""
    return agreed_view(cluster.brokers, lambda view: len(view.brokers) == 3 and led(view, topic), within_s)


def led(view: View, topic: str) -> bool:
    leaders = view.leaders.get(topic, ())
    return len(leaders) == PARTITIONS and min(leaders) >= 0


def controller_of(cluster: Cluster) -> ClusterBroker:
    view = agreed_view(cluster.brokers, lambda view: view.controller >= 0, KNOWN_WITHIN_S)
    return cluster.brokers[view.controller]


def others(cluster: Cluster, broker: ClusterBroker) -> list[ClusterBroker]:
    return [each for each in cluster.brokers if each is not broker]


def send(cluster: Cluster, topic: str, name: str) -> None:
    producer = confluent.producer(cluster.bootstrap)
    for partition in range(PARTITIONS):
        producer.produce(topic, f"{name} {partition}", partition=partition)
    assert producer.flush(60) == 0


def received(cluster: Cluster, topic: str) -> list[str]:
    found = []
    for partition in range(PARTITIONS):
        found += [message.value().decode() for message in confluent.read_all(cluster.bootstrap, topic, partition)]
    return sorted(found)


def expected(*names: str) -> list[str]:
    return sorted(f"{name} {partition}" for name in names for partition in range(PARTITIONS))


def allocates_producer_id(broker: ClusterBroker) -> int:
    answer = ask(broker.port, "InitProducerId", 2, InitProducerIdRequest(transactional_id=None))
    assert isinstance(answer, InitProducerIdResponse)
    assert answer.error_code == 0
    return int(answer.producer_id)


def test_the_controller_is_killed_and_comes_back(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, "before")
    killed = controller_of(cluster)
    rest = others(cluster, killed)
    led_by_killed = {index for index, leader in enumerate(whole(cluster, topic).leaders[topic]) if leader == killed.id}
    killed.kill()
    view = agreed_view(
        rest, lambda view: view.controller != killed.id and killed.id not in view.brokers, SESSION_S + KNOWN_WITHIN_S
    )
    # What it led has no other replica, and the rest is led on.
    leaders = view.leaders[topic]
    assert {index for index, leader in enumerate(leaders) if leader == -1} == led_by_killed
    # The new controller decides: it creates topics and hands out producer ids.
    confluent.create_topic(",".join(each.bootstrap for each in rest), "while-down", 2)
    assert allocates_producer_id(rest[0]) != allocates_producer_id(rest[1])

    killed.start()
    whole(cluster, topic)
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", "after")


@pytest.mark.long
def test_every_broker_is_restarted_in_turn(cluster: Cluster, topic: str) -> None:
    names = ["first"]
    send(cluster, topic, "first")
    for broker in cluster.brokers:
        assert broker.stop() == 0
        agreed_view(others(cluster, broker), lambda view: len(view.brokers) == 2, KNOWN_WITHIN_S)
        broker.start()
        whole(cluster, topic)
        names.append(f"after {broker.id}")
        send(cluster, topic, names[-1])
    assert received(cluster, topic) == expected(*names)


def test_the_whole_cluster_is_killed_and_restarted(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, "before")
    for broker in cluster.brokers:
        broker.kill()
    # Within the sessions of those that died: they wait for these to end.
    cluster.start()
    whole(cluster, topic)
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", "after")


@pytest.mark.parametrize("which", ["the controller", "another"])
def test_a_broker_is_paused_past_its_session(cluster: Cluster, topic: str, which: str) -> None:
    send(cluster, topic, "before")
    controller = controller_of(cluster)
    paused = controller if which == "the controller" else others(cluster, controller)[0]
    paused.pause()
    rest = others(cluster, paused)
    agreed_view(rest, lambda view: paused.id not in view.brokers, SESSION_S + KNOWN_WITHIN_S)
    paused.resume()
    # A new session, a new registration; an old controller does not take itself for one any more.
    whole(cluster, topic, SESSION_S + KNOWN_WITHIN_S)
    assert "registered again" in paused.process.log()
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", "after")


def test_produce_goes_on_while_the_ensemble_is_down(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, "before")
    cluster.zookeeper.each(lambda server: server.pause())
    try:
        ends = time.monotonic() + 2 * SESSION_S
        names: list[str] = []
        while time.monotonic() < ends:
            names.append(f"down {len(names)}")
            send(cluster, topic, names[-1])
    finally:
        cluster.zookeeper.each(lambda server: server.resume())
    whole(cluster, topic, SESSION_S + KNOWN_WITHIN_S)
    send(cluster, topic, "after")
    assert received(cluster, topic) == expected("before", *names, "after")


@pytest.mark.long
def test_ten_controllers_in_a_row_are_killed(cluster: Cluster, topic: str) -> None:
    names: list[str] = []
    for number in range(10):
        names.append(f"round {number}")
        send(cluster, topic, names[-1])
        killed = controller_of(cluster)
        killed.kill()
        agreed_view(others(cluster, killed), lambda view: len(view.brokers) == 2, SESSION_S + KNOWN_WITHIN_S)
        killed.start()
        whole(cluster, topic)
    assert received(cluster, topic) == expected(*names)
