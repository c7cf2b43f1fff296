"""The brokers under test as one face: start with a stop-watch, stop, kill, and where their process and port are."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tools.peers.kafka import free_port, start_kafka, start_kafka_with_zookeeper
from tools.peers.process import LoggedProcess

from bench.machine import cpu_seconds, started_at
from bench.measures import BEFORE, BRAIDLOG, KAFKA
from bench.requests import Requester, wait_for_answer
from braidlog.local_cluster.zookeeper import lasting_ports as free_lasting_ports

START_TIMEOUT_S = 300.0
# A broker with 10,000 partitions has as many files to write out; how long that takes is a result, not a failure.
STOP_TIMEOUT_S = 300.0

# A deleted topic's files would otherwise stay for a minute and compete for the page cache. The same for both brokers.
COMMON_SETTINGS: Mapping[str, str] = {"log.segment.delete.delay.ms": "1000"}


class Broker(Protocol):
    """A broker that is started and stopped, possibly several times, over one data directory."""

    name: str
    data: Path
    port: int
    born: float  # when the process began, on the boot-time clock
    start_seconds: float
    settings: dict[str, str]
    port_of_settings: int

    @property
    def pid(self) -> int: ...

    def start(self) -> None:
        """Start; afterwards `start_seconds` is the time from the process's birth to its first ApiVersions answer."""
        ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class _Lifetime:
    """What both have: a process within an exit stack, that is left on stop and on every other way out."""

    name: str

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.settings = {**COMMON_SETTINGS, **(settings or {})}
        self.port = 0
        # Where the settings name the address of the first listener themselves.
        self.port_of_settings = 0
        self.born = 0.0
        self.start_seconds = 0.0
        self._process: LoggedProcess | None = None
        self._stack = ExitStack()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def start(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        self.port = self.port_of_settings or free_port()
        give_up = threading.Event()
        with ThreadPoolExecutor(1) as prober:
            answered = prober.submit(wait_for_answer, self.port, give_up)
            try:
                self.born = self._spawn()
                self.start_seconds = answered.result(timeout=START_TIMEOUT_S) - self.born
            except BaseException:
                give_up.set()
                self._stack.close()
                raise

    def _spawn(self) -> float:
        """Start the process, return when it was born, on the boot-time clock."""
        raise NotImplementedError

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate(timeout_s=STOP_TIMEOUT_S)
        self._stack.close()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        self._stack.close()


class Braidlog(_Lifetime):
    name = BRAIDLOG
    sources = Path(__file__).parents[1] / "src"

    def _command(self) -> list[str]:
        command = [str(Path(sys.executable).parent / "braidlog"), "serve", "--data", str(self.data)]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def _spawn(self) -> float:
        command = self._command()
        born = time.clock_gettime(time.CLOCK_BOOTTIME)
        process = self._stack.enter_context(
            LoggedProcess("braidlog", command, env={**os.environ, "PYTHONPATH": str(self.sources)})
        )
        process.wait_for_line(r"ready on .*:\d+", timeout_s=START_TIMEOUT_S)
        self._process = process
        return born

    @property
    def http_port(self) -> int:
        """Of `/metrics`."""
        assert self._process is not None, f"{self.name} is not running"
        return int(self._process.wait_for_line(r"metrics and health on http://\S+:(\d+)/")[1])


class Workers(Braidlog):
    """Several of them, as one cluster: `braidlog serve --workers`. `port` is the first one's."""

    def __init__(self, data: Path, workers: int, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(data, settings)
        self.workers = workers
        self.port_of_settings = lasting_ports(workers)

    def _command(self) -> list[str]:
        return [*super()._command(), "--workers", str(self.workers)]

    @property
    def ports(self) -> list[int]:
        return [self.port + number for number in range(self.workers)]

    @property
    def pids(self) -> list[int]:
        """Of everything that was started, the store's process and the supervisor among it."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]


def lasting_ports(count: int) -> int:
    """The first of so many in a row that are free, and stay so while connections are made."""
    while True:
        (first,) = free_lasting_ports(1)
        if not any(_is_taken(port) for port in range(first, first + count)):
            return first


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class OtherCheckout(Braidlog):
    """The braidlog of another checkout, on this one's interpreter and dependencies."""

    name = BEFORE

    def __init__(self, checkout: Path, data: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(data, settings)
        self.sources = checkout / "src"


class Kafka(_Lifetime):
    name = KAFKA

    def _spawn(self) -> float:
        running = self._stack.enter_context(start_kafka(self.data, self.port, self.settings))
        self._process = running.process
        return started_at(running.process.pid)


class KafkaWithZooKeeper(_Lifetime):
    """Of the older kind, one of several: `settings` name its id and its ZooKeeper."""

    name = KAFKA

    def _spawn(self) -> float:
        running = self._stack.enter_context(start_kafka_with_zookeeper(self.data, 0, self.port, self.settings))
        self._process = running.process
        return started_at(running.process.pid)


def make(name: str, data: Path, checkout: Path | None, settings: Mapping[str, str] | None = None) -> Broker:
    """`checkout` is where the braidlog to compare with is, if any."""
    if name == BEFORE:
        assert checkout is not None
        return OtherCheckout(checkout, data, settings)
    return Braidlog(data, settings) if name == BRAIDLOG else Kafka(data, settings)


@contextmanager
def topic(broker: Broker, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """A topic for the length of a block that succeeds; deleting it frees its pages and its disk."""
    with Requester(broker.port) as requester:
        requester.create_topic(name, partitions, settings)
    yield name
    with Requester(broker.port) as requester:
        requester.delete_topic(name)


class CpuWatch:
    """Processor seconds of a broker between two moments."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._before = cpu_seconds(broker.pid)

    def seconds(self) -> float:
        return cpu_seconds(self._broker.pid) - self._before
