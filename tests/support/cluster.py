"""A cluster as a user starts it: a real ZooKeeper, and `braidlog serve` once for each broker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tools.peers.process import LoggedProcess

from braidlog.testing.zookeeper import ZooKeeper
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from support.broker import BRAIDLOG, READY, Broker, serve_command
from support.eventually import eventually
from support.ports import lasting_port
from support.raw import ask

# Short, so that a death is noticed soon; two of the test ZooKeeper's ticks are the least that it grants.
SESSION_TIMEOUT_MS: Final = 3000
BASE_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "20000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class ClusterBroker:
    """One broker, running or not; it comes back to its port and its data."""

    def __init__(self, broker_id: int, data_dir: Path, settings: Mapping[str, str]) -> None:
        self.id = broker_id
        self.data_dir = data_dir
        self.port = lasting_port()
        self.settings = {**settings, "broker.id": str(broker_id)}
        self.running: Broker | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> LoggedProcess:
        assert self.running is not None
        return self.running.process

    def begin(self) -> None:
        """Start without waiting for it to be ready."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = serve_command(self.data_dir, self.port, self.settings)
        process = LoggedProcess(f"broker {self.id}", command, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        process.__enter__()
        self.running = Broker(BRAIDLOG, process, self.port, self.data_dir)

    def wait_until_ready(self) -> None:
        self.process.wait_for_line(READY)

    def start(self) -> None:
        self.begin()
        self.wait_until_ready()

    def stop(self) -> int:
        return self.process.terminate()

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        if self.running is not None:
            self.running.process.__exit__(None, None, None)

    @property
    def is_running(self) -> bool:
        return self.running is not None and self.running.process.returncode is None


class Cluster:
    def __init__(self, zookeeper: ZooKeeper, directory: Path, count: int, settings: Mapping[str, str] | None) -> None:
        self.zookeeper = zookeeper
        base = {**BASE_SETTINGS, "zookeeper.connect": zookeeper.connect, **(settings or {})}
        self.brokers = [ClusterBroker(number, directory / f"broker{number}", base) for number in range(count)]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        for broker in self.brokers:
            broker.begin()
        for broker in self.brokers:
            broker.wait_until_ready()

    def logs(self, last: int = 40) -> str:
        parts = []
        for broker in self.brokers:
            if broker.running is not None:
                parts.append(f"--- broker {broker.id}\n{broker.process.log(last)}")
        return "\n".join(parts)


@contextmanager
def start_cluster(
    zookeeper: ZooKeeper, directory: Path, count: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    cluster = Cluster(zookeeper, directory, count, settings)
    try:
        cluster.start()
        yield cluster
    finally:
        for broker in cluster.brokers:
            broker.end()


class Reachable(Protocol):
    """A broker of any kind on loopback."""

    @property
    def port(self) -> int: ...


class View(NamedTuple):
    """The cluster as one broker describes it to clients."""

    brokers: frozenset[int]
    controller: int
    # Topic -> the leader of each partition.
    leaders: dict[str, tuple[int, ...]]


def view_of(broker: Reachable) -> View | None:
    """None where the broker does not answer."""
    try:
        answer = ask(broker.port, "Metadata", 12, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    except OSError:
        return None
    assert isinstance(answer, MetadataResponse)
    return View(
        frozenset(each.node_id for each in answer.brokers),
        answer.controller_id,
        {
            str(topic.name): tuple(each.leader_id for each in sorted(topic.partitions, key=lambda p: p.partition_index))
            for topic in answer.topics
        },
    )


def agreed_view(brokers: Iterable[Reachable], right: Callable[[View], bool], within_s: float) -> View:
    """What all these brokers say once they say the same, and that is right; fails after `within_s`."""
    asked = list(brokers)
    views: list[View | None] = []

    def agreed() -> bool:
        views[:] = [view_of(broker) for broker in asked]
        first = views[0]
        return first is not None and all(view == first for view in views) and right(first)

    try:
        eventually(agreed, within_s)
    except AssertionError:
        raise AssertionError(f"within {within_s} s the brokers do not agree on what is right: {views}") from None
    assert views[0] is not None
    return views[0]
