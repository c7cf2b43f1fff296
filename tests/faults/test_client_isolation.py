"""Clients whose requests are valid, only far more than anybody needs: the others go on, and memory stays bounded.

How long the others wait is what `python -m bench --only fairness` measures. The times here are far above its targets:
they tell a broker that serves others late, on a busy machine, from one that does not serve them.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from support.attacks.catalog import ATTACKS, Harm
from support.attacks.processes import ClientFailed, Latencies, MemoryWatch, RunningAttack, Victim, memory_cgroup
from support.attacks.sending import connect
from support.attacks.target import Target, batch_of, frame, tiny_records
from support.attacks.victim import TOPIC as VICTIM_TOPIC
from support.broker import Broker, start_braidlog
from support.eventually import eventually
from support.metrics import total
from support.raw import RawConnection
from support.repetitions import some

MB = 1_000_000
# An attack goes on for at least so long, and until all of it was sent and answered once.
ATTACK_S = 1.0
# One that takes memory may never come to its end: all is well as long as the broker takes it slowly.
MEMORY_ATTACK_S = 4.0
# Where an attack shuts others out, they wait for as long as it goes on. These are for two cores that other tests share;
# how short the waits are is shown by `python -m bench --only fairness`.
LONGEST_WAIT_MS = 10_000
LONGEST_MEDIAN_MS = 2_500
INNOCENTS = 24
CGROUP_BYTES = 200 * MB
# Of a single connection that does not read; what the broker's allocator keeps for itself is in it.
MOST_GAINED_BY_ONE = 64 * MB
MOST_KEPT = 64 * MB

# Smaller where getting ready would take longer than the attack; full size in the benchmark and in the soak.
SCALES = {
    "alter-configs": 0.2,
    "create-partitions": 0.2,
    "create-topics": 0.2,
    "delete-topics": 0.2,
    "gzip-bomb-of-records": 0.25,
    "gzip-bomb-of-zeros": 0.5,
    "metadata-repeated": 0.25,
    "metadata-wide": 0.25,
    "unread-wide-fetches": 0.25,
}
OF_TIME = [name for name, attack in ATTACKS.items() if attack.harm is Harm.TIME]
OF_MEMORY = [name for name, attack in ATTACKS.items() if attack.harm is Harm.MEMORY]
BY_ONE_CONNECTION = ["unread-fetches", "trickled-fetches", "unread-metadata", "unread-api-versions"]
BY_MANY_CONNECTIONS = ["unread-connections", "unread-wide-fetches", "stalled-frames", "large-frames"]
# What else needs much memory to be answered.
LARGE_WHEN_OPENED = [
    "describe-configs-repeated",
    "down-conversion",
    "gzip-bomb-of-records",
    "gzip-bomb-of-zeros",
    "metadata-repeated",
    "metadata-unknown",
    "zstd-bombs",
]


def _attack(name: str, broker: Broker) -> RunningAttack:
    return RunningAttack(name, broker.port, SCALES.get(name, 1.0))


def _assert_alive(broker: Broker) -> None:
    assert broker.process.returncode is None, f"the broker ended with {broker.process.returncode}:\n{broker.log()}"


def _assert_served(victim: Victim, begin: float, end: float) -> Latencies:
    """The victim was answered between two moments, and is answered up to now."""
    victim.await_report_after(end)
    seen = victim.between(begin, end)
    assert not seen.broken, f"the victim lost its connection: {seen.broken}"
    assert seen.max < LONGEST_WAIT_MS, f"the victim was not served: {seen}"
    assert seen.p50 < LONGEST_MEDIAN_MS, f"the victim was hardly served: {seen}"
    return seen


def _assert_innocents_served(broker: Broker) -> None:
    """New connections, all open together, are accepted and answered, and can read."""
    wanted = [FetchPartition(partition=0, partition_max_bytes=1000)]
    fetch = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic=VICTIM_TOPIC, partitions=wanted)])
    with ExitStack() as opened:
        lines = [opened.enter_context(RawConnection(broker.port)) for _ in range(INNOCENTS)]
        for line in lines:
            line.send_bytes(frame("ApiVersions", 0, ApiVersionsRequest()))
        for line in lines:
            assert line.receive_frame() is not None, "an innocent client's connection was closed"
        for line in lines:
            answer = line.ask("Fetch", 11, fetch)
            assert answer.responses[0].partitions[0].error_code == 0  # type: ignore[attr-defined]


class Scene:
    """A broker with its victim that several tests share; a new one when the last test has left it broken."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._running = ExitStack()
        self._count = 0
        self.broker: Broker
        self.victim: Victim

    def start(self) -> None:
        self.close()
        self._count += 1
        self.broker = self._running.enter_context(start_braidlog(self._place / f"data-{self._count}"))
        self.victim = self._running.enter_context(Victim(self.broker.port))

    def close(self) -> None:
        self._running.close()


@pytest.fixture(scope="module")
def scene_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("isolation"))
    scene.start()
    yield scene
    scene.close()


@pytest.fixture
def scene(scene_of_module: Scene, request: pytest.FixtureRequest) -> Iterator[Scene]:
    failed_before = request.session.testsfailed
    yield scene_of_module
    if request.session.testsfailed > failed_before or scene_of_module.broker.process.returncode is not None:
        scene_of_module.start()


@pytest.mark.parametrize("name", OF_TIME)
def test_the_others_are_served_beside(name: str, scene: Scene) -> None:
    with _attack(name, scene.broker) as attack:
        begin = time.monotonic()
        attack.begin()
        attack.await_landed()
        scene.victim.await_report_after(begin + ATTACK_S)
        end = time.monotonic()
        counts = attack.finish()
    _assert_alive(scene.broker)
    seen = _assert_served(scene.victim, begin, end)
    print(f"{name}: {seen}; {counts}")
    assert counts.get("closed", 0) == 0, "a valid request is answered, however large"
    assert counts["rounds"] >= 1


def _endure(broker: Broker, name: str, most_gained: int | None) -> None:
    """One memory attack: the others are served meanwhile, and afterwards memory and connections are as before."""
    try:
        _attack_memory(broker, name, most_gained)
    except (AssertionError, OSError, ClientFailed):
        # Where the broker has died, nothing else that went wrong is worth telling.
        with suppress(TimeoutExpired):
            broker.process.wait(1.0)
        _assert_alive(broker)
        raise
    _assert_innocents_served(broker)
    assert broker.stop() == 0, broker.log()


def _attack_memory(broker: Broker, name: str, most_gained: int | None) -> None:
    with Victim(broker.port) as victim, _attack(name, broker) as attack:
        connections = total(broker, "kafka_server_socket_server_metrics_connection_count")
        memory = MemoryWatch(broker.process.pid)
        begin = time.monotonic()
        attack.begin()
        attack.has_landed_within(MEMORY_ATTACK_S)
        _assert_innocents_served(broker)
        victim.await_report_after(begin + MEMORY_ATTACK_S)
        end = time.monotonic()
        gained = memory.gained
        counts = attack.finish()
        seen = _assert_served(victim, begin, end)
        print(f"{name}: {gained / MB:.0f} MB gained; {seen}; {counts}")
        if most_gained is not None:
            assert gained < most_gained, f"{gained / MB:.0f} MB were taken by an attack of {name}"
        eventually(lambda: total(broker, "kafka_server_socket_server_metrics_connection_count") <= connections)
        eventually(lambda: memory.now < memory.before + MOST_KEPT)
        over = time.monotonic()
        victim.await_report_after(over)
        assert not victim.between(begin, over).broken


@pytest.mark.parametrize("name", BY_ONE_CONNECTION)
def test_a_client_that_does_not_read_takes_little_memory(name: str, tmp_path: Path) -> None:
    with start_braidlog(tmp_path / "data") as broker:
        _endure(broker, name, MOST_GAINED_BY_ONE)


@pytest.mark.parametrize("name", BY_MANY_CONNECTIONS)
def test_all_connections_together_stay_within_the_memory_budget(name: str, tmp_path: Path) -> None:
    budget = 150 * MB
    with start_braidlog(tmp_path / "data", {"braidlog.memory.max": str(budget)}) as broker:
        _endure(broker, name, budget)


# The memory attacks were run above, on brokers that keep within a budget by themselves.
@pytest.mark.parametrize("name", some([*OF_MEMORY, *LARGE_WHEN_OPENED], "unread-connections", *LARGE_WHEN_OPENED))
def test_a_broker_with_little_memory_outlives(name: str, tmp_path: Path) -> None:
    with ExitStack() as opened:
        try:
            group = opened.enter_context(memory_cgroup(CGROUP_BYTES))
        except OSError as problem:
            pytest.skip(f"no memory cgroup can be made here: {problem}")

        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        broker = opened.enter_context(start_braidlog(tmp_path / "data", preexec=enter))
        _endure(broker, name, None)


def test_a_long_answer_that_is_read_slowly_comes_whole(tmp_path: Path) -> None:
    """The idle sweep counts what is sent, too: here it passes several times while one answer is on its way."""
    size, chunk, pause_s = 16 * MB, MB // 2, 0.35
    with start_braidlog(tmp_path / "data", {"connections.max.idle.ms": "5000"}) as broker:
        target = Target(broker.port)
        target.create_topic("long", max_message_bytes="2000000")
        for _ in range(size // MB):
            target.produce("long", [(0, batch_of(tiny_records(1, bytes(MB)), 1))])
        target.close()
        wanted = [FetchPartition(partition=0, partition_max_bytes=2 * size)]
        request = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic="long", partitions=wanted)])
        with connect(broker.port, receive_buffer=65536) as line:
            line.setblocking(True)
            line.settimeout(30)
            line.sendall(frame("Fetch", 11, request))
            (left,) = struct.unpack(">i", line.recv(4, socket.MSG_WAITALL))
            assert left > size
            began = time.monotonic()
            while left:
                due = time.monotonic() + pause_s
                for_this_step = min(chunk, left)
                while for_this_step:
                    got = len(line.recv(for_this_step))
                    assert got, f"the broker closed with {left} bytes still to come"
                    for_this_step -= got
                    left -= got
                # A reader as slow as this one has to wait; nothing else is to happen meanwhile.
                select.select([], [], [], max(0.0, due - time.monotonic()))
            assert time.monotonic() - began > 10, "the idle sweep has passed meanwhile"
