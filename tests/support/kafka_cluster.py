"""Three Apache Kafka brokers, each a controller as well, with small heaps: for what one broker cannot show."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.peers.kafka import SHIPPED_SETTINGS, KafkaBroker, format_storage, java_command
from tools.peers.process import LoggedProcess

from support.ports import lasting_port

NODES = (1, 2, 3)
# Three of them share a machine with everything else: little memory, and code that is ready sooner.
SMALL_JVM = ("-Xmx256M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
REPLICATED: Mapping[str, str] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}


class KafkaCluster:
    """`brokers` by node id; one that was killed comes back with `start`, to the same port and data."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self._place = place
        self._stack = stack
        self._ports = {node: (lasting_port(), lasting_port()) for node in NODES}
        self.brokers: dict[int, KafkaBroker] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _ in self._ports.values())

    def begin(self) -> None:
        """All at once: none is ready before there is a majority."""
        processes = {node: self._launch(node) for node in NODES}
        for node, process in processes.items():
            self._ready(node, process)

    def configure(self, settings: Mapping[str, str]) -> None:
        """From the next start on."""
        for node in NODES:
            path = self._properties(node)
            path.write_text(path.read_text() + "".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self, node: int) -> None:
        self._ready(node, self._launch(node))

    def kill(self, node: int) -> None:
        self.brokers.pop(node).kill()

    def _ready(self, node: int, process: LoggedProcess) -> None:
        process.wait_for_line(r"Kafka Server started")
        self.brokers[node] = KafkaBroker(process, self._ports[node][0], self._place / str(node))

    def _launch(self, node: int) -> LoggedProcess:
        path = self._properties(node)
        if not path.exists():
            path.write_text("".join(f"{key}={value}\n" for key, value in self._settings(node).items()))
            format_storage(path)
        command = java_command("kafka.Kafka", [str(path)], SMALL_JVM, "INFO")
        return self._stack.enter_context(LoggedProcess(f"kafka {node}", command))

    def _properties(self, node: int) -> Path:
        return self._place / f"server-{node}.properties"

    def _settings(self, node: int) -> dict[str, str]:
        port, controller_port = self._ports[node]
        return {
            **SHIPPED_SETTINGS,
            **REPLICATED,
            "process.roles": "broker,controller",
            "node.id": str(node),
            "broker.rack": f"rack-{node}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{self._ports[each][1]}" for each in NODES),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self._place / str(node)),
        }


@contextmanager
def start_kafka_cluster() -> Iterator[KafkaCluster]:
    with tempfile.TemporaryDirectory(prefix="kafka-cluster-") as scratch, ExitStack() as stack:
        cluster = KafkaCluster(Path(scratch), stack)
        cluster.begin()
        yield cluster
