"""`braidlog reassign` and `elect` on real brokers: replicas move under throttles, which are gone in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.client.admin import ConfigResource
from braidlog.core.types import TopicPartition
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster
from braidlog.testing.client_factory import unique_topic
from support.cluster import start_cluster
from support.command_line import RunningCommand, run_command
from support.eventually import eventually
from support.moved_replicas import KNOWN_WITHIN_S, LISTS, MB, RATES, World, write_plan


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    made = World(cluster.bootstrap_servers, cluster.brokers)
    yield made
    made.admin.close()


class OwnWorld(World):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.bootstrap_servers, cluster.brokers)
        self.cluster = cluster


@pytest.fixture
def own(zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path) -> Iterator[OwnWorld]:
    """Three brokers of the test's own, which elect preferred leaders soon."""
    settings = {
        "zookeeper.connect": new_connect(),
        "auto.leader.rebalance.enable": "true",
        "leader.imbalance.check.interval.seconds": "2",
        "leader.imbalance.per.broker.percentage": "10",
    }
    with start_cluster(zookeeper, tmp_path, settings=settings) as cluster:
        made = OwnWorld(cluster)
        yield made
        made.admin.close()


def test_a_topic_with_data_moves_under_a_throttle_that_is_gone_afterwards(world: World, tmp_path: Path) -> None:
    topic = unique_topic("moved")
    world.create(topic, [0, 1], [0, 1])
    world.fill(topic, 0, 2 * MB)
    world.fill(topic, 1, 2 * MB)
    plan = write_plan(tmp_path / "plan.json", topic, [1, 2], [2, 0])
    shown = run_command(world.bootstrap, "reassign", "plan", "--plan", plan, "--output", "json").json
    assert shown["replicas"] == 2
    assert 3.9 * MB < shown["bytes"] < 4.2 * MB
    assert world.replicas(topic) == [(0, 1), (0, 1)], "a plan moves nothing"

    began = time.monotonic()
    running = RunningCommand(world.bootstrap, "reassign", "execute", "--plan", plan, "--throttle", "1MB", "--yes")
    eventually(lambda: len(world.throttles(topic)) == 8, KNOWN_WITHIN_S)
    throttles = world.throttles(topic)
    assert throttles[LISTS[0]] == "0:0,0:1,1:0,1:1"
    assert throttles[LISTS[1]] == "0:2,1:2"
    assert {throttles[f"{broker} {name}"] for broker in range(3) for name in RATES} == {"1000000"}
    ended = running.wait()
    assert ended.code == 0, ended.err
    # Broker 0 leads both: it sends 4 MB, the first of which is not waited for.
    assert time.monotonic() - began > 2.5
    assert "2 partitions moved" in ended.out
    assert "of 2 partitions moved" in ended.err
    assert " left" in ended.err
    assert world.throttles(topic) == {}
    assert world.replicas(topic) == [(1, 2), (2, 0)]
    assert world.leaders(topic) == [1, 2]
    assert world.read(topic, 0) == world.read(topic, 1) == 200
    verified = run_command(world.bootstrap, "reassign", "verify", "--plan", plan)
    assert (verified.code, verified.out.splitlines()[-1]) == (0, "2 partitions moved")


def test_a_preferred_leader_is_elected_by_hand(world: World) -> None:
    topic = unique_topic("elected")
    world.create(topic, [0, 1])
    place = TopicPartition(topic, 0)
    # Another order of the same replicas: nothing is copied, and nobody elected.
    world.admin.alter_partition_reassignments({place: [1, 0]}).raise_for_errors()
    eventually(lambda: world.replicas(topic) == [(1, 0)], KNOWN_WITHIN_S)
    assert world.leaders(topic) == [0]
    (row,) = run_command(world.bootstrap, "elect", topic, "--output", "json").json
    assert row == {"topic": topic, "partition": 0, "was": 0, "leader": 1, "result": "elected"}
    assert "nothing to elect" in run_command(world.bootstrap, "elect", f"{topic}:0").out
    assert "nothing to elect" in run_command(world.bootstrap, "elect", topic, "--unclean").out


@pytest.mark.long
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_rate_is_held_within_a_tenth(world: World, side: str) -> None:
    topic = unique_topic("rate")
    rate = 2 * MB
    world.create(topic, [0], [0], [0])
    for partition in range(3):
        world.fill(topic, partition, 12 * MB)
    throttled = ConfigResource.broker(0 if side == "leader" else 1)
    changes = {
        ConfigResource.topic(topic): {f"{side}.replication.throttled.replicas": "*"},
        throttled: {f"{side}.replication.throttled.rate": str(rate)},
    }
    world.admin.alter_configs(changes).raise_for_errors()

    def copied() -> int:
        return sum(world.sizes(topic, partition).get(1, 0) for partition in range(3))

    try:
        places = [TopicPartition(topic, partition) for partition in range(3)]
        world.admin.alter_partition_reassignments({place: [1] for place in places}).raise_for_errors()
        eventually(lambda: copied() > 6 * MB, KNOWN_WITHIN_S)
        began, first = time.monotonic(), copied()
        while copied() < 30 * MB:
            assert time.monotonic() - began < 60
            time.sleep(0.2)
        measured = (copied() - first) / (time.monotonic() - began)
        assert 0.9 * rate <= measured <= 1.1 * rate
        # Live: without the list the rest comes at once.
        world.admin.alter_configs({ConfigResource.topic(topic): {f"{side}.replication.throttled.replicas": None}})
        eventually(lambda: not world.admin.list_partition_reassignments(places), 20)
    finally:
        removed = {resource: dict.fromkeys(each) for resource, each in changes.items()}
        world.admin.alter_configs(removed).raise_for_errors()


@pytest.mark.long
def test_in_sync_replicas_keep_up_however_low_the_rate(world: World) -> None:
    topic = unique_topic("insync")
    world.create(topic, [0, 1])
    rates = {ConfigResource.broker(broker): dict.fromkeys(RATES, "1000") for broker in (0, 1)}
    lists = {ConfigResource.topic(topic): dict.fromkeys(LISTS, "*")}
    try:
        world.admin.alter_configs({**rates, **lists}).raise_for_errors()
        began = time.monotonic()
        world.fill(topic, 0, 4 * MB)
        eventually(lambda: world.sizes(topic, 0).get(1, 0) == world.sizes(topic, 0)[0], 30)
        assert time.monotonic() - began < 60
        assert world.admin.describe_topics([topic])[topic].partitions[0].in_sync == (0, 1)
    finally:
        removed = {resource: dict.fromkeys(each) for resource, each in {**rates, **lists}.items()}
        world.admin.alter_configs(removed).raise_for_errors()


@pytest.mark.long
def test_a_command_that_was_killed_is_picked_up_by_the_next(world: World, tmp_path: Path) -> None:
    topic = unique_topic("killed")
    world.create(topic, [0])
    world.fill(topic, 0, 10 * MB)
    plan = write_plan(tmp_path / "plan.json", topic, [2])
    words = ("reassign", "execute", "--plan", plan, "--throttle", "500kB", "--yes")
    first = RunningCommand(world.bootstrap, *words)
    eventually(lambda: world.sizes(topic, 0).get(2, 0) > 0, KNOWN_WITHIN_S)
    first.kill()
    assert len(world.throttles(topic)) == 6
    (under_way,) = run_command(world.bootstrap, "reassign", "status", "--output", "json").json
    assert (under_way["before"], under_way["after"]) == ([0], [2])
    assert 0 < under_way["copied_bytes"] < under_way["bytes"]
    assert run_command(world.bootstrap, "reassign", "verify").code == 1
    assert len(world.throttles(topic)) == 6, "what is being moved stays throttled"
    # The second one may be faster.
    ended = run_command(world.bootstrap, *words[:-2], "5MB", "--yes")
    assert ended.code == 0, ended.err
    assert world.replicas(topic) == [(2,)]
    assert world.throttles(topic) == {}
    assert world.read(topic, 0) == 1000


@pytest.mark.long
def test_a_move_is_cancelled(world: World, tmp_path: Path) -> None:
    topic = unique_topic("cancelled")
    world.create(topic, [0])
    world.fill(topic, 0, 10 * MB)
    plan = write_plan(tmp_path / "plan.json", topic, [2])
    running = RunningCommand(world.bootstrap, "reassign", "execute", "--plan", plan, "--throttle", "100kB", "--yes")
    eventually(lambda: world.admin.list_partition_reassignments() != {}, KNOWN_WITHIN_S)
    cancelled = run_command(world.bootstrap, "reassign", "cancel", "--topics", topic, "--yes")
    assert (cancelled.code, cancelled.out) == (0, "1 move cancelled\n")
    ended = running.wait()
    assert ended.code == 1
    assert "on 0 instead of 2; somebody else may have moved or cancelled it" in ended.out
    assert world.replicas(topic) == [(0,)]
    assert world.throttles(topic) == {}


@pytest.mark.long
def test_a_broker_leaves_and_one_comes(own: OwnWorld) -> None:
    own.create("orders", [0, 1], [1, 2], [2, 0], [2, 1])
    own.create("users", [2], [1])
    own.fill("orders", 1, MB)
    own.fill("users", 0, MB)
    left = run_command(own.bootstrap, "reassign", "execute", "--without", "2", "--throttle", "20MB", "--yes")
    assert left.code == 0, left.err
    for topic in ("orders", "users"):
        assert all(2 not in replicas for replicas in own.replicas(topic))
    own.cluster.brokers[2].stop()
    assert own.read("orders", 1) == own.read("users", 0) == 100
    own.cluster.brokers[2].start()
    came = run_command(own.bootstrap, "reassign", "execute", "--brokers", "0,1,2", "--topics", "orders", "--yes")
    assert came.code == 0, came.err
    held = [broker for replicas in own.replicas("orders") for broker in replicas]
    assert sorted(held.count(broker) for broker in range(3)) == [2, 3, 3]
    assert own.read("orders", 1) == 100
    again = run_command(own.bootstrap, "reassign", "execute", "--brokers", "0,1,2", "--topics", "orders", "--yes")
    assert again.out == "nothing has to move\n"


@pytest.mark.long
def test_preferred_leaders_lead_again_by_themselves_and_unclean_ones_on_request(own: OwnWorld) -> None:
    own.create("orders", [2, 1])
    own.cluster.brokers[2].restart()
    # It led until it was stopped, and does again soon after it is back in sync.
    eventually(lambda: own.leaders("orders") == [2], KNOWN_WITHIN_S)
    own.cluster.brokers[1].stop()
    own.fill("orders", 0, MB)
    own.cluster.brokers[2].kill()
    own.cluster.brokers[1].start()
    eventually(lambda: own.leaders("orders") == [None], KNOWN_WITHIN_S)
    refused = run_command(own.bootstrap, "elect", "orders", "--unclean")
    assert refused.code == 1
    assert "this would lose records of 1 partition; add --yes" in refused.err
    table = refused.out.splitlines()
    assert table[0].split() == ["TOPIC", "PARTITION", "IN-SYNC", "CANDIDATES", "LACKS-RECORDS", "SIZE"]
    assert table[1].split()[:4] == ["orders", "0", "2", "1"]
    elected = run_command(own.bootstrap, "elect", "orders", "--unclean", "--yes")
    assert elected.code == 0, elected.err
    assert own.leaders("orders") == [1]
