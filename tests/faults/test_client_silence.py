"""What a person hears of a client that goes on trying: the cause, soon and seldom; and nothing of what passes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from braidlog.client.admin.admin import Admin
from braidlog.client.admin.topics import NewTopic
from braidlog.client.consumer.async_consumer import AsyncConsumer
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.errors import ClientError
from braidlog.client.producer.producer import Producer
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from support.broker import Broker, start_braidlog
from support.cutting_proxy import CuttingProxy
from support.eventually import eventually
from support.ports import lasting_port

TOPIC = "orders"
SETTINGS = {
    "braidlog.http.listen": "",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
# The first line comes after two seconds; the rest is for a machine that is busy.
SOON_S = 20.0


class Heard:
    """What the clients' loggers said, from whichever thread."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "braidlog.client")
        self._caplog = caplog

    def lines(self, level: int) -> list[str]:
        return [each.getMessage() for each in self._caplog.records if each.levelno == level]

    @property
    def warnings(self) -> list[str]:
        return self.lines(logging.WARNING)

    def comes(self, level: int, *parts: str) -> None:
        eventually(lambda: any(all(part in line for part in parts) for line in self.lines(level)), SOON_S)


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Heard:
    return Heard(caplog)


class Place:
    """A broker that goes and comes back on one port."""

    def __init__(self, data: Path, lives: ExitStack) -> None:
        self._data = data
        self._lives = lives
        self._port = lasting_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.broker: Broker = self.start()

    def start(self) -> Broker:
        self.broker = self._lives.enter_context(start_braidlog(self._data, SETTINGS, port=self._port))
        return self.broker

    def create(self, topic: str) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions=1)]).raise_for_errors()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as lives:
        yield Place(tmp_path / "data", lives)


class InAThread:
    """A program that polls or sends all the while; what it raises is kept."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._is_over = threading.Event()
        self.problem: BaseException | None = None
        self.turns = 0
        # Turns in which something was read or written.
        self.successes = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.successes += bool(self._work())
                self.turns += 1
        except BaseException as problem:
            self.problem = problem

    def succeeded_since(self, count: int) -> bool:
        return self.successes > count

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self.problem is None, self.problem


def assigned(bootstrap: str, lives: ExitStack) -> Callable[[], object]:
    consumer = lives.enter_context(Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest"))
    consumer.assign([TopicPartition(TOPIC, 0)])
    return lambda: consumer.poll(0.1)


def in_a_group(bootstrap: str, lives: ExitStack, **settings: Any) -> Callable[[], object]:
    consumer = lives.enter_context(Consumer(bootstrap_servers=bootstrap, group_id="g", **settings))
    consumer.subscribe([TOPIC])
    return lambda: consumer.poll(0.1)


def newer_group(bootstrap: str, lives: ExitStack) -> Callable[[], object]:
    return in_a_group(bootstrap, lives, group_protocol="consumer")


def producing(bootstrap: str, lives: ExitStack) -> Callable[[], object]:
    producer = lives.enter_context(Producer(bootstrap_servers=bootstrap))
    return lambda: producer.send(TOPIC, b"v").result(120)


def in_a_loop(bootstrap: str, lives: ExitStack) -> Callable[[], object]:
    runner = lives.enter_context(asyncio.Runner())

    async def made() -> AsyncConsumer:
        consumer = AsyncConsumer(bootstrap_servers=bootstrap, group_id="g")
        await consumer.subscribe([TOPIC])
        return consumer

    consumer = runner.run(made())
    lives.callback(lambda: runner.run(consumer.close()))
    return lambda: runner.run(consumer.poll(0.1))


CLIENTS = {
    "assigned": (assigned, "consumer: "),
    "classic group": (in_a_group, "consumer: "),
    "newer group": (newer_group, "consumer: "),
    "producer": (producing, "producer: "),
    "async": (in_a_loop, "consumer: "),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_broker_that_is_gone_is_told_once_and_its_return_too(place: Place, heard: Heard, kind: str) -> None:
    place.create(TOPIC)
    make, who = CLIENTS[kind]
    with ExitStack() as lives:
        program = InAThread(make(place.bootstrap, lives))
        lives.callback(program.end)
        # It works before, without a word.
        eventually(lambda: program.turns > 3)
        assert heard.warnings == []
        place.broker.kill()
        heard.comes(logging.WARNING, who, "failing for", f"no broker answers at {place.bootstrap}", "refused")
        # One for everything that follows from it: fetches, heartbeats, commits, look-ups.
        assert len(heard.warnings) == 1, heard.warnings
        place.start()
        heard.comes(logging.INFO, who, "works again after")
        assert [each for each in heard.warnings[1:] if "has lost" not in each] == []


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_topic_that_does_not_exist_is_told(place: Place, heard: Heard, kind: str) -> None:
    make, who = CLIENTS[kind]
    with ExitStack() as lives:
        program = InAThread(make(place.bootstrap, lives))
        lives.callback(program.end)
        heard.comes(logging.WARNING, who, f"topic {TOPIC}: it does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
        assert len(heard.warnings) == 1, heard.warnings
        place.create(TOPIC)
        heard.comes(logging.INFO, who, "works again after", f"topic {TOPIC}")
        assert len(heard.warnings) == 1, heard.warnings


def test_calls_that_wait_tell_it_as_well(place: Place, heard: Heard) -> None:
    with Consumer(bootstrap_servers=place.bootstrap) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.partitions_for("ordrs", timeout=5.0)
        heard.comes(logging.WARNING, "topic ordrs: it does not exist")
    place.broker.kill()
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        with pytest.raises(ClientError):
            admin.within(5.0).list_topics()
        heard.comes(logging.WARNING, "admin: failing for", "no broker answers")


def test_a_broker_that_stands_still_is_told_before_requests_time_out(place: Place, heard: Heard) -> None:
    place.create(TOPIC)
    with ExitStack() as lives:
        program = InAThread(assigned(place.bootstrap, lives))
        lives.callback(program.end)
        eventually(lambda: program.turns > 3)
        place.broker.process.signal(signal.SIGSTOP)
        try:
            heard.comes(logging.WARNING, "consumer: failing for", "no answer to a fetch for 5.5 s")
        finally:
            place.broker.process.signal(signal.SIGCONT)
        heard.comes(logging.INFO, "consumer: works again after", "broker ")
        assert len(heard.warnings) == 1, heard.warnings


def test_what_passes_is_not_mentioned(tmp_path: Path, heard: Heard) -> None:
    """Connections that break and are made again, members that come and go."""
    with CuttingProxy() as proxy, ExitStack() as lives:
        settings = {**SETTINGS, **proxy.settings()}
        lives.enter_context(start_braidlog(tmp_path / "data", settings, port=proxy.broker_port))
        with Admin(bootstrap_servers=proxy.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC)]).raise_for_errors()
        programs = [InAThread(make(proxy.bootstrap, lives)) for make in (in_a_group, assigned, producing)]
        for program in programs:
            lives.callback(program.end)
        for _ in range(5):
            with ExitStack() as fellow:
                poll = in_a_group(proxy.bootstrap, fellow)
                for _ in range(5):
                    poll()
            before = [program.successes for program in programs]
            proxy.cut()
            # Cuts that follow one another without a success in between are one failure that lasts.
            for program, count in zip(programs, before, strict=True):
                eventually(partial(program.succeeded_since, count))
        assert heard.warnings == []


def test_a_program_that_set_up_no_logging_sees_it(place: Place) -> None:
    program = f"""
import time
from braidlog import Consumer
with Consumer(bootstrap_servers={place.bootstrap!r}, group_id="g") as consumer:
    consumer.subscribe(["ordrs"])
    until = time.monotonic() + 6.0
    while time.monotonic() < until:
        assert consumer.poll(0.2) == []
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=True, env=dict(os.environ)
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("consumer: failing for ")
    assert "topic ordrs: it does not exist" in line


def test_the_command_line_says_it_as_its_own(place: Place) -> None:
    place.create(TOPIC)
    command = [sys.executable, "-m", "braidlog", "consume", TOPIC, "--bootstrap", place.bootstrap]
    command += ["--offset", "earliest"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consume:
        try:
            with Producer(bootstrap_servers=place.bootstrap) as producer:
                producer.send(TOPIC, b"v").result(60)
            assert consume.stdout is not None
            consume.stdout.readline()
            place.broker.kill()
            assert consume.stderr is not None
            line = consume.stderr.readline()
        finally:
            consume.kill()
    assert line.count("failing for") == 1
    assert "no broker answers" in line
