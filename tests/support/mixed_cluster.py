"""Apache Kafka in ZooKeeper mode and our brokers in one cluster, each a process of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tools.peers.kafka import KafkaBroker, start_kafka_with_zookeeper
from tools.peers.process import LoggedProcess

from braidlog.local_cluster.child_processes import THIS_MACHINE, Machine
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster, ClusterBroker
from support.broker import BRAIDLOG, KAFKA
from support.cluster import BASE_SETTINGS, View, agreed_view
from support.eventually import eventually
from support.kafka_cluster import SMALL_JVM
from support.ports import lasting_port

KAFKA_ID: Final = 10
KAFKA_SESSION_MS: Final = 6000
# A Java broker that starts and takes over on a machine that is busy with other tests.
KNOWN_WITHIN_S: Final = 60.0


class KafkaMember:
    """A Kafka broker of the cluster, running or not; it comes back to its port and its data."""

    def __init__(
        self,
        broker_id: int,
        data_dir: Path,
        settings: Mapping[str, str],
        libs: Path | None = None,
        machine: Machine = THIS_MACHINE,
    ) -> None:
        """`libs` has the jars of another version."""
        self.id = broker_id
        self.host = machine.host
        self._machine = machine
        self._libs = libs
        self.data_dir = data_dir
        self.port = lasting_port()
        # Read at each start.
        self.settings = {
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            **settings,
            "broker.id": str(broker_id),
        }
        self._stack = ExitStack()
        self._running: KafkaBroker | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> LoggedProcess:
        assert self._running is not None
        return self._running.process

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.process.returncode is None

    def start(self) -> None:
        self.end()
        started = start_kafka_with_zookeeper(
            self.data_dir,
            0,
            self.port,
            self.settings,
            SMALL_JVM,
            self._libs,
            self._machine.prefix,
            self.data_dir.with_suffix(".log"),
        )
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
    """`kafka` and two of ours, or as many of each as is said. Every test leaves all of them running.

    Each is on one of the `machines`, Kafka's on the last ones, if there are any.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        directory: Path,
        connect: str,
        settings: Mapping[str, str],
        libs: Path | None = None,
        *,
        ours: int = 2,
        kafkas: int = 1,
        machines: Sequence[Machine] = (),
    ) -> None:
        self.connect = connect
        common = {**BASE_SETTINGS, **settings, "zookeeper.connect": connect}
        places = machines or [THIS_MACHINE] * (ours + kafkas)
        self._ours = Cluster(settings=common, directory=directory, zookeeper=zookeeper, machines=places[:ours])
        self.ours = self._ours.brokers
        known = {key: value for key, value in common.items() if not key.startswith("braidlog.")}
        kafka_settings = {**known, "zookeeper.session.timeout.ms": str(KAFKA_SESSION_MS), **settings}
        self.kafkas = [
            KafkaMember(broker_id, directory / f"kafka-{broker_id}", kafka_settings, libs, machine)
            for broker_id, machine in enumerate(places[ours:], start=KAFKA_ID)
        ]
        self.kafka = self.kafkas[0]

    @property
    def brokers(self) -> list[Member]:
        return [*self.ours, *self.kafkas]

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

    def elect_controller(self, broker: Member) -> None:
        """As operators do it, by the removal of /controller: the others are paused, so that they do not run for it."""
        others = [each for each in self.running if each is not broker]
        with zookeeper_client(self.connect) as client:

            def is_elected() -> bool:
                try:
                    return bool(json.loads(client.get("/controller")[0])["brokerid"] == broker.id)
                except NoNodeError:
                    return False

            for each in others:
                each.pause()
            try:
                client.delete("/controller")
                eventually(is_elected, KNOWN_WITHIN_S)
            finally:
                for each in others:
                    each.resume()
        self.agreed(lambda view: view.controller == broker.id)

    def end(self) -> None:
        self._ours.close()
        for kafka in self.kafkas:
            kafka.end()

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
    *,
    ours: int = 2,
    kafkas: int = 1,
    machines: Sequence[Machine] = (),
) -> Iterator[MixedCluster]:
    """Kafka comes first: the nodes of the cluster are those that it made. `libs` has the jars of another version."""
    cluster = MixedCluster(
        zookeeper, directory, connect, settings or {}, libs, ours=ours, kafkas=kafkas, machines=machines
    )
    try:
        for broker in [*cluster.kafkas, *cluster.ours]:
            broker.start()
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
