"""What operators see of three brokers while one is down or cut off: describe, brokers, log-dirs, doctor, top."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from braidlog import Producer
from braidlog.cli.program import main
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing.cluster import Cluster, ClusterBroker
from support.cluster import start_cluster
from support.cluster_commands import Commands
from support.eventually import eventually
from support.ports import lasting_port

BRAIDLOG = [sys.executable, "-m", "braidlog"]
PARTITIONS = 6


@pytest.fixture(scope="module")
def watched(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    settings = {
        "zookeeper.connect": new_connect(),
        "braidlog.http.listen": "127.0.0.1:0",
        "controlled.shutdown.enable": "true",
        "replica.lag.time.max.ms": "4000",
        "auto.leader.rebalance.enable": "false",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    cluster = start_cluster(zookeeper, tmp_path_factory.mktemp("watched"), settings=settings)
    for broker, rack in zip(cluster.brokers, "abb", strict=True):
        broker.settings["broker.rack"] = rack
        broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},INTERNAL://127.0.0.1:{lasting_port()}"
    with cluster:
        yield cluster


@pytest.fixture
def commands(watched: Cluster, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(watched, capsys)


@pytest.fixture
def topic(commands: Commands, request: pytest.FixtureRequest) -> Iterator[str]:
    """Six partitions of three replicas, of which two have to be in sync, with records in all of them; the only one."""
    name = re.sub(r"\W", "-", request.node.name)
    shape = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
    commands("topics", "create", name, *shape, "--topic-config", "min.insync.replicas=2")
    send(commands.cluster, name)
    eventually(lambda: commands("topics", "describe", "--under-replicated") == [], 60)
    yield name
    for each in commands("topics", "list", "--exclude-internal"):
        commands("topics", "delete", each["topic"])


def send(cluster: Cluster, topic: str, count: int = 60) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, f"record {number}", partition=number % PARTITIONS)
        producer.flush()


def states(described: list[dict[str, Any]]) -> set[str]:
    return {replica["state"] for each in described for row in each["partitions"] for replica in row["states"]}


def numbers(broker: ClusterBroker) -> dict[str, float]:
    with urlopen(f"http://{broker.http_address}/metrics", timeout=30) as page:
        text = page.read().decode()
    return {name: float(value) for name, value in re.findall(r"(?m)^([a-z]\S*) (\S+)$", text)}


def test_all_is_well(commands: Commands, topic: str) -> None:
    (described,) = commands("topics", "describe", topic)
    assert states([described]) == {"online"}
    for choice in ("--under-replicated", "--under-min-isr", "--at-min-isr", "--unavailable"):
        assert commands("topics", "describe", topic, choice) == []
    brokers = commands("brokers")
    assert [(each["broker"], each["rack"], each["reachable"]) for each in brokers] == [
        (0, "a", True),
        (1, "b", True),
        (2, "b", True),
    ]
    assert sum(each["controller"] for each in brokers) == 1
    assert len({each["version"] for each in brokers}) == 1
    directories = commands("log-dirs")
    assert [(each["broker"], each["state"]) for each in directories] == [(0, "online"), (1, "online"), (2, "online")]
    replicas = commands("log-dirs", "--topic", topic)
    assert len(replicas) == 3 * PARTITIONS
    assert {each["offset_lag"] for each in replicas} == {0}

    found = commands.findings()
    assert found["between brokers"][0]["text"] == "3 brokers reach those that they follow, and the controller all"
    assert found["clocks"][0]["status"] == "ok"
    assert "uneven: a 1, b 2 brokers" in found["racks"][0]["text"]
    assert "names one server" in found["ZooKeeper"][0]["text"]
    assert "metrics" not in found
    assert "lagging replicas" not in found


def test_records_are_deleted_on_all_brokers(commands: Commands, topic: str) -> None:
    rows = commands("delete-records", topic, "--all", "--execute")
    assert [(row["partition"], row["new_earliest"]) for row in rows] == [(each, 10) for each in range(PARTITIONS)]
    offsets = commands("topics", "offsets", topic)
    assert [row["records"] for row in offsets] == [0] * PARTITIONS


def test_a_broker_is_stopped(commands: Commands, topic: str) -> None:
    strict, alone = f"{topic}-strict", f"{topic}-alone"
    shape = ("--partitions", "1", "--replication-factor", "3")
    commands("topics", "create", strict, *shape, "--topic-config", "min.insync.replicas=3")
    controller = next(each["broker"] for each in commands("brokers") if each["controller"])
    stopped = next(each for each in commands.cluster.brokers if each.id != controller)
    commands("topics", "create", alone, "--replica-assignment", str(stopped.id))
    stopped.stop()
    try:
        eventually(lambda: len(commands("topics", "describe", topic, "--under-replicated")) == 1, 60)
        (described,) = commands("topics", "describe", topic, "--at-min-isr")
        assert len(described["partitions"]) == PARTITIONS
        for row in described["partitions"]:
            assert {each["broker"]: each["state"] for each in row["states"]}[stopped.id] == "offline"
        refusing = commands("topics", "describe", "--under-min-isr")
        assert [each["topic"] for each in refusing] == [strict]
        assert [each["topic"] for each in commands("topics", "describe", "--unavailable")] == [alone]

        rows = {each["broker"]: each for each in commands("brokers", code=1)}
        assert (rows[stopped.id]["address"], rows[stopped.id]["reachable"]) == (None, False)
        assert [each["broker"] for each in commands("log-dirs")] == sorted({0, 1, 2} - {stopped.id})

        send(commands.cluster, topic)
        found = commands.findings()
        (down,) = found["lagging replicas"]
        assert down["text"].startswith(f"broker {stopped.id} is behind with {topic}-0 (")
        assert down["text"].endswith(": it is down")
        refused = next(each for each in found["replicas"] if each["status"] == "problem")
        assert f"acks=all is refused: {strict}-0" in refused["text"]

        led = [numbers(each) for each in commands.cluster.brokers if each is not stopped]
        manager = "kafka_server_replicamanager_"
        assert sum(each[manager + "underreplicatedpartitions"] for each in led) >= PARTITIONS + 1
        assert sum(each[manager + "underminisrpartitioncount"] for each in led) == 1
        assert sum(each[manager + "isrshrinks_total"] for each in led) == 0, "the controller took it out"
        behind = [
            value
            for each in led
            for name, value in each.items()
            if name.startswith(f'braidlog_replica_behind_records{{topic="{topic}"')
        ]
        # It has not fetched since these leaders began, or lacks what was sent since.
        assert all(value == 10 for value in behind)
        assert sum(each["kafka_controller_kafkacontroller_activebrokercount"] for each in led) == 2
        assert sum(each["kafka_controller_kafkacontroller_offlinepartitionscount"] for each in led) == 1
    finally:
        stopped.start()
    eventually(lambda: commands("topics", "describe", "--under-replicated") == [], 60)
    # Each broker hears of it in its own time.
    eventually(lambda: states(commands("topics", "describe", topic)) == {"online"}, 60)
    leaders = [numbers(each) for each in commands.cluster.brokers]
    assert sum(each["kafka_server_replicamanager_isrexpands_total"] for each in leaders) >= PARTITIONS


def test_top_once(commands: Commands, topic: str) -> None:
    writer = subprocess.Popen(
        [*BRAIDLOG, "perf", "produce", topic, "--records", "100000", "--rate", "1000",
         "--bootstrap", commands.cluster.bootstrap_servers],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        commands("groups", "reset-offsets", "late", "--topic", topic, "--to-earliest", "--execute")
        eventually(lambda: sum(each["latest"] for each in commands("topics", "offsets", topic)) > 60, 60)
        seen = commands("top", "--interval", "1")
    finally:
        writer.kill()
        writer.wait()
    assert seen["unread_metrics"] == {}
    assert (seen["offline"], seen["under_replicated"], seen["under_min_isr"]) == (0, 0, 0)
    assert seen["bytes_in_per_second"] > 1000
    assert seen["requests_per_second"] > 1
    assert [each["state"] for each in seen["brokers"]] == ["up"] * 3
    assert sum(each["replicated_in_per_second"] for each in seen["brokers"]) > seen["bytes_in_per_second"]
    assert [each["topic"] for each in seen["topics"]] == [topic]
    (late,) = (each for each in seen["groups"] if each["group"] == "late")
    assert late["lag"] > 60
    assert late["lag_change_per_second"] > 0


def test_top_on_a_terminal(commands: Commands, topic: str) -> None:
    """It draws brokers until a key ends it, and leaves the terminal as it was."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "LINES": "30", "COLUMNS": "100"}
    command = [*BRAIDLOG, "top", "--interval", "0.5", "--bootstrap", commands.cluster.bootstrap_servers]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = read_until(ours, lambda text: text.count("BROKERS") >= 2)
        assert "3 of 3 brokers up" in drawn
        assert "\x1b[?1049h" in drawn
        os.write(ours, b"q")
        rest = read_until(ours, lambda text: "\x1b[?1049l" in text)
        assert process.wait(60) == 0
    assert rest.rstrip().endswith("\x1b[?1049l")
    os.close(ours)


def read_until(terminal: int, done: Callable[[str], bool], within_s: float = 60.0) -> str:
    deadline = time.monotonic() + within_s
    text = ""
    while not done(text):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"not seen within {within_s} s: {text}"
        text += os.read(terminal, 1 << 16).decode()
    return text


@pytest.mark.long
def test_a_broker_is_cut_off(commands: Commands, topic: str) -> None:
    """Its clients reach it, the other brokers do not: what it advertises to them leads nowhere."""
    controller = next(each["broker"] for each in commands("brokers") if each["controller"])
    cut_off = next(each for each in commands.cluster.brokers if each.id != controller)
    name = str(cut_off.id)
    wrong = f"PLAINTEXT://127.0.0.1:{cut_off.port},INTERNAL://127.0.0.1:1"
    commands("configs", "alter", "--broker", name, "--set", f"advertised.listeners={wrong}")
    try:
        # The controller has something to say to it.
        commands("topics", "create", f"{topic}-next", "--replica-assignment", "0:1:2", code=None)

        def problems() -> list[dict[str, str]]:
            return [each for each in commands.findings()["between brokers"] if each["status"] == "problem"]

        eventually(lambda: bool(problems()), 60)
        for each in problems():
            assert f"has not reached broker {name} for" in each["text"]
            assert "inter.broker.listener.name" in each["advice"]
    finally:
        commands("configs", "alter", "--broker", name, "--delete", "advertised.listeners")
    eventually(lambda: not problems(), 60)
    eventually(lambda: commands("topics", "describe", "--under-replicated") == [], 60)


@pytest.mark.long
def test_a_follower_is_paused(commands: Commands, topic: str) -> None:
    """Its session ends, and the doctor says that it is down; once it runs again, all is well."""
    paused = commands.cluster.brokers[1]
    paused.pause()
    try:
        others = ",".join(each.bootstrap_servers for each in commands.cluster.brokers if each is not paused)
        eventually(
            lambda: (
                main(["cluster", "status", "--bootstrap", others]) == 1
                and len(commands("topics", "describe", topic, "--under-replicated")) == 1
            ),
            60,
        )
        (lagging,) = commands.findings()["lagging replicas"]
        assert lagging["text"].startswith("broker 1 is behind with ")
        assert lagging["text"].endswith("it is down")
    finally:
        paused.resume()
    eventually(lambda: commands("topics", "describe", "--under-replicated") == [], 60)
