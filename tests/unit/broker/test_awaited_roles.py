"""Produce requests that are ahead of the controller's word wait for it, and no longer than it takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.awaited_roles import AwaitedRoles
from braidlog.core.protocol_errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import ReplicationContext
from braidlog.wire.generated.produce import ProduceResponse
from support.data_path import TOPIC, DataPath, Peer, Steps, batch, produce_request

FIRST, SECOND = TopicPartition(TOPIC, 2), TopicPartition(TOPIC, 3)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path)
    yield made
    made.close()


@pytest.fixture
def timers() -> Steps:
    return Steps()


@pytest.fixture
def awaited(world: DataPath, timers: Steps) -> AwaitedRoles:
    return AwaitedRoles([FIRST, SECOND], world.registry, world.produce_handler, timers.call_later)


def ask(peer: Peer, partition: int, sequence: int = 0) -> None:
    records = batch(b"v", sequence=sequence, transactional=False)
    peer.ask(0, 11, produce_request({partition: records}, None))


def results(peer: Peer) -> list[tuple[int, int]]:
    """Error code and offset of each answer."""
    found = []
    for answer in peer.answers:
        assert isinstance(answer, ProduceResponse)
        found += [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]
    return found


def take_role(world: DataPath, awaited: AwaitedRoles, key: TopicPartition) -> None:
    world.add_partition(key.topic, key.partition, world.partitions[0].topic_id)
    awaited.named([key])
    world.steps.run()


def test_requests_wait_in_their_order_until_the_role_is_named(world: DataPath, awaited: AwaitedRoles) -> None:
    peer = Peer(world)
    ask(peer, 2, sequence=0)
    ask(peer, 2, sequence=1)
    world.steps.run()
    assert results(peer) == []
    awaited.named([SECOND])
    world.steps.run()
    assert results(peer) == []
    take_role(world, awaited, FIRST)
    assert results(peer) == [(0, 0), (0, 1)]
    assert not peer.muted


def test_partitions_that_have_their_role_or_were_never_here_do_not_wait(world: DataPath, awaited: AwaitedRoles) -> None:
    peer = Peer(world)
    ask(peer, 0)
    ask(peer, 9)
    world.steps.run()
    assert results(peer) == [(0, 0), (UnknownTopicOrPartitionError.code, -1)]


def test_a_request_waits_no_longer_than_its_limit(world: DataPath, awaited: AwaitedRoles, timers: Steps) -> None:
    peer = Peer(world)
    ask(peer, 2)
    world.steps.run()
    timers.wait()
    world.steps.run()
    assert results(peer) == [(UnknownTopicOrPartitionError.code, -1)]
    take_role(world, awaited, FIRST)
    ask(peer, 2)
    world.steps.run()
    assert results(peer)[1:] == [(0, 0)]


def test_what_the_controller_never_names_is_not_waited_for_in_the_end(
    world: DataPath, awaited: AwaitedRoles, timers: Steps
) -> None:
    """The topic was deleted while the broker was down."""
    awaited.named([FIRST])
    timers.wait()
    peer = Peer(world)
    ask(peer, 3)
    world.steps.run()
    assert results(peer) == [(UnknownTopicOrPartitionError.code, -1)]


def follow(world: DataPath, epoch: int) -> None:
    world.partitions[0].context = ReplicationContext(world.clock)
    world.partitions[0].update_leader_and_isr(2, epoch, (1, 2), (1, 2))


def test_a_follower_holds_what_comes_before_it_hears_that_it_leads(world: DataPath, awaited: AwaitedRoles) -> None:
    follow(world, 1)
    world.clock.advance(61)
    peer = Peer(world)
    ask(peer, 0, sequence=0)
    ask(peer, 0, sequence=1)
    world.steps.run()
    assert results(peer) == []
    world.partitions[0].update_leader_and_isr(1, 2, (1,), (1,))
    awaited.named([TopicPartition(TOPIC, 0)])
    world.steps.run()
    assert results(peer) == [(0, 0), (0, 1)]


def test_a_follower_of_a_new_leader_sends_producers_there_at_once(world: DataPath, awaited: AwaitedRoles) -> None:
    follow(world, 1)
    world.clock.advance(61)
    peer = Peer(world)
    ask(peer, 0)
    follow(world, 2)
    awaited.named([TopicPartition(TOPIC, 0)])
    world.steps.run()
    assert results(peer) == [(NotLeaderOrFollowerError.code, -1)]


def test_a_producer_that_is_wrong_about_the_leader_is_told_in_the_end(
    world: DataPath, awaited: AwaitedRoles, timers: Steps
) -> None:
    follow(world, 1)
    world.clock.advance(61)
    peer = Peer(world)
    ask(peer, 0)
    world.steps.run()
    assert results(peer) == []
    timers.wait()
    world.steps.run()
    assert results(peer) == [(NotLeaderOrFollowerError.code, -1)]


def test_a_broker_that_led_a_moment_ago_refuses_at_once(world: DataPath, awaited: AwaitedRoles) -> None:
    follow(world, 1)
    peer = Peer(world)
    ask(peer, 0)
    world.steps.run()
    assert results(peer) == [(NotLeaderOrFollowerError.code, -1)]
