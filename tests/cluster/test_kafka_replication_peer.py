"""Apache Kafka and our brokers copy from each other, under load, while either kind fails.

Each kind leads one partition of every topic and follows the other's; each is the controller in turn. Kafka 2.6 is an
older peer: its leaders store their ISRs by themselves and tell the controller by /isr_change_notification, and under
its controller ours do the same; it has no topic ids, and finds out where logs part by OffsetForLeaderEpoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tools.peers.kafka import OLDER_VERSION, VERSION, VERSION_2_8, VERSION_3_4

from braidlog.core.types import TopicPartition
from braidlog.local_cluster.zookeeper import ZooKeeper
from support import confluent
from support.broker import BRAIDLOG, KAFKA
from support.client_history import Sent
from support.mixed_cluster import KAFKA_ID, Member, MixedCluster, kind_of, start_mixed_cluster
from support.mixed_replication import REPLICATED_SETTINGS, Replicated
from support.replicated_traffic import KINDS

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(1200)]

# The first partition is led by ours, the second by Kafka.
THREE: Final = [[0, KAFKA_ID, 1], [KAFKA_ID, 0, 1]]


@pytest.fixture(
    scope="module",
    params=[
        VERSION,
        OLDER_VERSION,
        pytest.param(VERSION_3_4, marks=pytest.mark.long),
        pytest.param(VERSION_2_8, marks=pytest.mark.long),
    ],
)
def cluster(
    request: pytest.FixtureRequest,
    kafka_libs_of: Callable[[str], Path],
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MixedCluster]:
    libs = kafka_libs_of(request.param)
    place = tmp_path_factory.mktemp("peers")
    with start_mixed_cluster(zookeeper, place, new_connect(), REPLICATED_SETTINGS, libs) as running:
        yield running


@pytest.fixture(params=[KAFKA, BRAIDLOG])
def controller(cluster: MixedCluster, request: pytest.FixtureRequest) -> str:
    for broker in cluster.brokers:
        broker.resume()
        if not broker.is_running:
            broker.start()
    cluster.hand_over_to(request.param, lambda broker: broker.stop())
    return str(request.param)


def test_both_kinds_fail_in_turn(cluster: MixedCluster, controller: str) -> None:
    """Each as a leader of one partition and a follower of another; coordinators move with them."""
    kinds = [KINDS["idempotent"], KINDS["transactional"], KINDS["compressed"]]
    replicated = Replicated(cluster, kinds, THREE, min_isr=2)
    victims: list[Member] = [cluster.ours[0], cluster.kafka]
    # The controller comes last: it commands the other kind until then.
    victims.sort(key=lambda broker: kind_of(broker) == controller)
    with replicated.traffic.running():
        for victim, kill in itertools.product(victims, (False, True)):
            replicated.end(victim, kill)
            replicated.go_on()
            victim.start()
            replicated.await_isrs()
            replicated.go_on()
    replicated.check()


@pytest.mark.parametrize("leader_kind", [KAFKA, BRAIDLOG])
def test_a_leader_that_comes_back_truncates_what_its_follower_never_had(
    cluster: MixedCluster, controller: str, leader_kind: str
) -> None:
    members: list[Member] = [cluster.kafka, cluster.ours[0]]
    leader, follower = members if leader_kind == KAFKA else members[::-1]
    replicas = [[leader.id, follower.id], [follower.id, leader.id]]
    replicated = Replicated(cluster, [KINDS["idempotent"]], replicas, min_isr=1)
    topic = next(iter(replicated.topics))
    with replicated.traffic.running():
        follower.pause()
        try:
            uncommitted = written_to_the_leader_alone(replicated, topic)
            leader.kill()
        finally:
            follower.resume()
        cluster.agreed()
        replicated.go_on()
        leader.start()
        replicated.await_isrs()
        replicated.go_on()
    replicated.check()
    found = {message.value() for message in confluent.read_all(cluster.bootstrap_servers, topic, 0)}
    # The answer to a fetch that was under way may have brought the first.
    assert found.isdisjoint(uncommitted[1:])


def written_to_the_leader_alone(replicated: Replicated, topic: str) -> list[bytes]:
    """With acks=1, a batch each; nobody may miss them."""
    producer = confluent.producer(replicated.cluster.bootstrap_servers, acks=1, retries=0, linger_ms=0)
    values = [f"{topic}/alone/{number}".encode() for number in range(5)]
    for value in values:
        replicated.traffic.history.note(Sent("alone", TopicPartition(topic, 0), value))
        producer.produce(topic, value, partition=0, on_delivery=_delivered)
        assert producer.flush(30) == 0
    return values


def _delivered(error: object, message: object) -> None:
    assert error is None, error


def test_leaders_of_both_kinds_shrink_and_expand_the_isr(cluster: MixedCluster, controller: str) -> None:
    """One of ours is stuck; the controller is asked by a leader of its own and one of the other kind."""
    leader, stuck = cluster.ours
    if cluster.controller() is stuck:
        leader, stuck = stuck, leader
    replicas = [[leader.id, KAFKA_ID, stuck.id], [KAFKA_ID, leader.id, stuck.id]]
    replicated = Replicated(cluster, [KINDS["idempotent"]], replicas, min_isr=2)
    replicated.stick(stuck)


def test_our_leader_shrinks_and_expands_the_isr_of_a_kafka_follower(cluster: MixedCluster) -> None:
    cluster.hand_over_to(BRAIDLOG, lambda broker: broker.stop())
    # Kafka leads nothing here.
    replicated = Replicated(cluster, [KINDS["idempotent"]], [[0, KAFKA_ID, 1], [1, KAFKA_ID, 0]], min_isr=2)
    replicated.stick(cluster.kafka)
