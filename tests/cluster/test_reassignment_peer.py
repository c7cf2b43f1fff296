"""Moves of replicas with Kafka's own tools on our brokers, and with ours where Kafka's brokers are in the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools.peers.kafka import run_tool

from braidlog.client.admin import ConfigResource
from braidlog.core.types import TopicPartition
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster
from braidlog.testing.client_factory import unique_topic
from support.command_line import run_command
from support.eventually import eventually
from support.mixed_cluster import KAFKA_ID, start_mixed_cluster
from support.moved_replicas import KNOWN_WITHIN_S, LISTS, MB, World, write_plan

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(600)]


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    made = World(cluster.bootstrap_servers, cluster.brokers)
    yield made
    made.admin.close()


@pytest.fixture(scope="module")
def mixed(
    apache_kafka: object,
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """Brokers 0 and 1 are ours."""
    with start_mixed_cluster(zookeeper, tmp_path_factory.mktemp("mixed"), new_connect()) as cluster:
        cluster.agreed()
        made = World(cluster.bootstrap_servers, cluster.brokers)
        yield made
        made.admin.close()


def tool(world: World, name: str, *arguments: str) -> str:
    done = run_tool(name, ["--bootstrap-server", world.bootstrap, *arguments])
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_kafkas_tool_moves_a_topic_between_our_brokers(world: World, tmp_path: Path) -> None:
    topic = unique_topic("tool")
    world.create(topic, [0, 1], [0, 1])
    world.fill(topic, 0, 3 * MB)
    (tmp_path / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = tool(
        world, "kafka-reassign-partitions", "--generate", "--broker-list", "1,2",
        "--topics-to-move-json-file", str(tmp_path / "topics.json"),
    )  # fmt: skip
    proposed = generated.split("Proposed partition reassignment configuration\n")[1].strip()
    (tmp_path / "plan.json").write_text(proposed)
    plan = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    began = time.monotonic()
    started = tool(world, "kafka-reassign-partitions", "--execute", *plan, "--throttle", "500000")
    assert "Successfully started partition reassignment" in started
    throttles = world.throttles(topic)
    assert set(throttles) >= set(LISTS)
    assert "500000" in throttles.values()
    assert topic in tool(world, "kafka-reassign-partitions", "--list")
    assert "still in progress" in tool(world, "kafka-reassign-partitions", "--verify", *plan, "--preserve-throttles")
    eventually(lambda: not world.admin.list_partition_reassignments(), KNOWN_WITHIN_S)
    assert time.monotonic() - began > 3
    verified = tool(world, "kafka-reassign-partitions", "--verify", *plan)
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert world.throttles(topic) == {}
    assert all(set(replicas) == {1, 2} for replicas in world.replicas(topic))
    # The plan is ours to read.
    assert run_command(world.bootstrap, "reassign", "verify", "--plan", str(tmp_path / "plan.json")).code == 0


def test_kafkas_tool_reads_our_plan_and_cancels(world: World, tmp_path: Path) -> None:
    topic = unique_topic("saved")
    world.create(topic, [0], [0], [0])
    for partition in range(3):
        world.fill(topic, partition, 2 * MB)
    saved = str(tmp_path / "plan.json")
    planned = run_command(world.bootstrap, "reassign", "plan", "--topics", topic, "--save", saved)
    assert "2 partitions change; 2 replicas are copied" in planned.out
    plan = ("--reassignment-json-file", saved)
    tool(world, "kafka-reassign-partitions", "--execute", *plan, "--throttle", "50000")
    cancelled = tool(world, "kafka-reassign-partitions", "--cancel", *plan)
    assert f"Successfully cancelled partition reassignments for: {topic}-" in cancelled
    eventually(lambda: world.replicas(topic) == [(0,)] * 3, KNOWN_WITHIN_S)
    assert world.throttles(topic) == {}


def test_kafkas_tool_elects_leaders_of_our_brokers(world: World) -> None:
    topic = unique_topic("tool-elected")
    world.create(topic, [0, 1])
    world.admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 0]}).raise_for_errors()
    eventually(lambda: world.replicas(topic) == [(1, 0)], KNOWN_WITHIN_S)
    said = tool(world, "kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in said
    eventually(lambda: world.leaders(topic) == [1], KNOWN_WITHIN_S)
    again = tool(world, "kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in again


@pytest.mark.parametrize(("source", "target"), [(0, KAFKA_ID), (KAFKA_ID, 1)])
def test_a_topic_moves_between_our_brokers_and_kafkas(mixed: World, tmp_path: Path, source: int, target: int) -> None:
    topic = unique_topic("mixed")
    mixed.create(topic, [source])
    mixed.fill(topic, 0, 6 * MB)
    plan = write_plan(tmp_path / "plan.json", topic, [target])
    began = time.monotonic()
    ended = run_command(mixed.bootstrap, "reassign", "execute", "--plan", plan, "--throttle", "1MB", "--yes")
    assert ended.code == 0, ended.err
    # Each side holds its own rate; Kafka's lets a window's worth through at once.
    assert time.monotonic() - began > 3
    assert mixed.replicas(topic) == [(target,)]
    assert mixed.throttles(topic) == {}
    assert mixed.read(topic, 0) == 600


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_our_side_alone_holds_the_rate_towards_kafka(mixed: World, side: str) -> None:
    topic = unique_topic("side")
    source, target = (0, KAFKA_ID) if side == "leader" else (KAFKA_ID, 0)
    mixed.create(topic, [source])
    mixed.fill(topic, 0, 10 * MB)
    changes = {
        ConfigResource.topic(topic): {f"{side}.replication.throttled.replicas": "0:0"},
        ConfigResource.broker(0): {f"{side}.replication.throttled.rate": str(MB)},
    }
    mixed.admin.alter_configs(changes).raise_for_errors()
    try:
        mixed.admin.alter_partition_reassignments({TopicPartition(topic, 0): [target]}).raise_for_errors()
        eventually(lambda: mixed.sizes(topic, 0).get(target, 0) > 2 * MB, KNOWN_WITHIN_S)
        began, first = time.monotonic(), mixed.sizes(topic, 0)[target]
        while (copied := mixed.sizes(topic, 0)[target]) < 9 * MB:
            assert time.monotonic() - began < 60
            time.sleep(0.2)
        measured = (copied - first) / (time.monotonic() - began)
        # A batch more or less weighs a few percent of so little.
        assert 0.85 * MB <= measured <= 1.15 * MB
    finally:
        removed = {resource: dict.fromkeys(each) for resource, each in changes.items()}
        mixed.admin.alter_configs(removed).raise_for_errors()
    eventually(lambda: mixed.replicas(topic) == [(target,)], KNOWN_WITHIN_S)
