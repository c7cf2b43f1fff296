"""Apache Kafka in ZooKeeper mode and our brokers in one cluster, each a process of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from kazoo.client import KazooClient
from tools.peers.kafka import KafkaBroker, start_kafka_with_zookeeper
from tools.peers.process import LoggedProcess

from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster, ClusterBroker
from support.broker import BRAIDLOG, KAFKA
from support.cluster import BASE_SETTINGS, View, agreed_view
from support.kafka_cluster import SMALL_JVM
from support.ports import lasting_port

KAFKA_ID: Final = 10
KAFKA_SESSION_MS: Final = 6000
# A Java broker that starts and takes over on a machine that is busy with other tests.
KNOWN_WITHIN_S: Final = 60.0


class KafkaMember:
    """The Kafka broker of the cluster, running or not; it comes back to its port and its data."""

    def __init__(self, broker_id: int, data_dir: Path, settings: Mapping[str, str], libs: Path | None = None) -> None:
        """`libs` has the jars of another version."""
        self.id = broker_id
        self._libs = libs
        self.data_dir = data_dir
        self.port = lasting_port()
        # Read at each start.
        self.settings = {**settings, "broker.id": str(broker_id)}
        self._stack = ExitStack()
        self._running: KafkaBroker | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> LoggedProcess:
        assert self._running is not None
        return self._running.process

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.process.returncode is None

    def start(self) -> None:
        self.end()
        started = start_kafka_with_zookeeper(self.data_dir, 0, self.port, self.settings, SMALL_JVM, self._libs)
        self._running = self._stack.enter_context(started)

    def stop(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.signal(signal.SIGCONT)

    def log(self, last: int) -> str:
        return self.process.log(last)

    def end(self) -> None:
        if self.is_running:
            self.kill()
        self._stack.close()


Member: TypeAlias = ClusterBroker | KafkaMember


class MixedCluster:
    """`kafka` and two of ours. Every test leaves all of them running."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        directory: Path,
        connect: str,
        settings: Mapping[str, str],
        libs: Path | None = None,
    ) -> None:
        self.connect = connect
        common = {**BASE_SETTINGS, **settings, "zookeeper.connect": connect}
        self._ours = Cluster(2, settings=common, directory=directory, zookeeper=zookeeper)
        self.ours = self._ours.brokers
        known = {key: value for key, value in common.items() if not key.startswith("braidlog.")}
        kafka_settings = {**known, "zookeeper.session.timeout.ms": str(KAFKA_SESSION_MS), **settings}
        self.kafka = KafkaMember(KAFKA_ID, directory / "kafka", kafka_settings, libs)

    @property
    def brokers(self) -> list[Member]:
        return [*self.ours, self.kafka]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def running(self) -> list[Member]:
        return [broker for broker in self.brokers if broker.is_running]

    def broker(self, broker_id: int) -> Member:
        return next(broker for broker in self.brokers if broker.id == broker_id)

    def agreed(self, right: Callable[[View], bool] = lambda view: True) -> View:
        """What all that run say of themselves once they agree, know each other and have a controller."""
        ids = {broker.id for broker in self.running}
        return agreed_view(
            self.running,
            lambda view: view.brokers == ids and view.controller in ids and right(view),
            KNOWN_WITHIN_S,
        )

    def controller(self) -> Member:
        return self.broker(self.agreed().controller)

    def hand_over_to(self, kind: str, end: Callable[[Member], object]) -> None:
        """End controllers until one of this kind has taken over; then all are back."""
        while kind_of(self.controller()) != kind:
            end(self.controller())
        for broker in self.brokers:
            if not broker.is_running:
                broker.start()
        assert kind_of(self.controller()) == kind

    def end(self) -> None:
        self._ours.close()
        self.kafka.end()

    def logs(self, last: int = 40) -> str:
        return "\n".join(f"--- {kind_of(broker)} {broker.id}\n{broker.log(last)}" for broker in self.running)


def kind_of(broker: Member) -> str:
    return KAFKA if isinstance(broker, KafkaMember) else BRAIDLOG


@contextmanager
def start_mixed_cluster(
    zookeeper: ZooKeeper,
    directory: Path,
    connect: str,
    settings: Mapping[str, str] | None = None,
    libs: Path | None = None,
) -> Iterator[MixedCluster]:
    """Kafka comes first: the nodes of the cluster are those that it made. `libs` has the jars of another version."""
    cluster = MixedCluster(zookeeper, directory, connect, settings or {}, libs)
    try:
        cluster.kafka.start()
        for ours in cluster.ours:
            ours.start()
        yield cluster
    finally:
        cluster.end()


class Znode(NamedTuple):
    """Without times and transaction ids, which differ anyway."""

    # Parsed where it is JSON.
    data: Any
    version: int
    is_ephemeral: bool
    acl: tuple[tuple[int, str], ...]


@contextmanager
def zookeeper_client(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def read_node(client: KazooClient, path: str) -> Znode:
    data, stat = client.get(path)
    acls, _ = client.get_acls(path)
    try:
        content = json.loads(data)
    except (TypeError, ValueError):
        content = data
    return Znode(
        content, stat.version, stat.owner_session_id is not None, tuple((each.perms, each.id.id) for each in acls)
    )


def read_tree(client: KazooClient, root: str) -> dict[str, Znode]:
    """A node and all below it, by their paths relative to it."""
    found = {"": read_node(client, root)}
    for child in client.get_children(root):
        below = read_tree(client, f"{root.rstrip('/')}/{child}")
        found |= {f"/{child}{path}": node for path, node in below.items()}
    return found
