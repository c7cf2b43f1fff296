"""A cluster on ZooKeeper whose brokers change between Apache Kafka and braidlog, each with one settings file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tools.peers.kafka import READY_WITH_ZOOKEEPER, SHIPPED_SETTINGS, kafka_process
from tools.peers.process import LoggedProcess

from braidlog.local_cluster.broker_process import BrokerProcess
from support.broker import BRAIDLOG, KAFKA
from support.cluster import View, agreed_view
from support.kafka_cluster import SMALL_JVM
from support.ports import lasting_port

# Of a broker that starts, or a controller that takes over, on a machine that is busy with other tests.
KNOWN_WITHIN_S: Final = 90.0
IDS: Final = (1, 2, 3)
SCRAM: Final = "SCRAM-SHA-512"
# What Kafka's config/server.properties has, and what a cluster of three with logins and rules of access adds to it.
SETTINGS: Final = {
    **SHIPPED_SETTINGS,
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "auto.create.topics.enable": "false",
    "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": SCRAM,
    "listener.name.clients.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    # The last of three brokers that stop at once has nobody to hand over to, and is not to wait for one.
    "controlled.shutdown.retry.backoff.ms": "500",
    # With the default Kafka needs 128 MiB of its small heap for it, twice while its settings change.
    "log.cleaner.dedupe.buffer.size": "8388608",
    # Pieces so small that a throttled move is not done before it is looked at.
    "replica.fetch.max.bytes": "65536",
    # Kafka has this in its own file, for a vendor's plug-in; braidlog knows neither.
    "confluent.support.metrics.enable": "true",
}


class MigratingBroker:
    """A broker, running or not, and the kind that it is or will be; it keeps its ports and, unless told, its data."""

    def __init__(self, broker_id: int, directory: Path, settings: Mapping[str, str], kind: str) -> None:
        self.id = broker_id
        self.kind = kind
        self.host = "127.0.0.1"
        self.port, self.clients_port = lasting_port(), lasting_port()
        self.settings_file = directory / f"server-{broker_id}.properties"
        self._directory = directory
        self._directories = 0
        self._kafka: LoggedProcess | None = None
        self._braidlog = BrokerProcess(directory / f"braidlog-{broker_id}.log", f"braidlog {broker_id}")
        self._settings = {
            "broker.id": str(broker_id),
            "listeners": f"BROKERS://{self.host}:{self.port},CLIENTS://{self.host}:{self.clients_port}",
            **settings,
        }
        self.empty_data_dir()

    @property
    def data_dir(self) -> Path:
        return Path(self._settings["log.dirs"])

    def empty_data_dir(self) -> None:
        """From the next start on it has another directory; what was in the old one is gone."""
        if self._directories:
            shutil.rmtree(self.data_dir)
        self._directories += 1
        self.set({"log.dirs": str(self._directory / f"data-{self.id}-{self._directories}")})

    def set(self, settings: Mapping[str, str]) -> None:
        """From the next start on."""
        self._settings |= settings
        self.settings_file.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._braidlog.is_running or (self._kafka is not None and self._kafka.returncode is None)

    def begin(self, kind: str) -> None:
        self.kind = kind
        if kind == KAFKA:
            self._kafka = kafka_process(self.settings_file, SMALL_JVM)
        else:
            self._braidlog.begin(["--config", str(self.settings_file)])

    def wait_until_ready(self) -> None:
        if self.kind == KAFKA:
            assert self._kafka is not None
            self._kafka.wait_for_line(READY_WITH_ZOOKEEPER)
        else:
            self._braidlog.wait_until_ready()

    def start(self, kind: str) -> None:
        self.begin(kind)
        self.wait_until_ready()

    def stop(self) -> None:
        if self.kind == KAFKA:
            assert self._kafka is not None
            self._kafka.terminate()
        else:
            self._braidlog.stop()

    def kill(self) -> None:
        if self._kafka is not None:
            self._kafka.kill()
        self._braidlog.kill()

    def log(self, last: int) -> str:
        """Of this life, if it is Kafka's."""
        if self.kind == KAFKA:
            return "" if self._kafka is None else self._kafka.log(last)
        return self._braidlog.log(last)

    def log_of_this_life(self) -> list[str]:
        if self.kind == KAFKA:
            return [] if self._kafka is None else self._kafka.lines
        return self._braidlog.log_of_this_life().splitlines()


class MigratingCluster:
    """Three brokers of Apache Kafka at first, and whoever comes after them."""

    def __init__(self, directory: Path, connect: str) -> None:
        self.connect = connect
        self._directory = directory
        self.brokers: list[MigratingBroker] = []
        for broker_id in IDS:
            self.add(broker_id, KAFKA)

    def add(self, broker_id: int, kind: str) -> MigratingBroker:
        broker = MigratingBroker(broker_id, self._directory, SETTINGS | {"zookeeper.connect": self.connect}, kind)
        self.brokers.append(broker)
        return broker

    def remove(self, broker: MigratingBroker) -> None:
        """One that was stopped, and does not come back."""
        self.brokers.remove(broker)

    @property
    def running(self) -> list[MigratingBroker]:
        return [broker for broker in self.brokers if broker.is_running]

    @property
    def bootstrap_servers(self) -> str:
        """Of all, running or not: clients find the others through those that run."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def broker(self, broker_id: int) -> MigratingBroker:
        return next(broker for broker in self.brokers if broker.id == broker_id)

    def start_all(self, kind: str) -> None:
        for broker in self.brokers:
            broker.begin(kind)
        for broker in self.brokers:
            broker.wait_until_ready()
        self.agreed()

    def stop_all(self) -> None:
        for broker in self.running:
            broker.stop()

    def set(self, settings: Mapping[str, str]) -> None:
        for broker in self.brokers:
            broker.set(settings)

    def agreed(self, right: Callable[[View], bool] = lambda view: True) -> View:
        """What all that run say of themselves once they agree, know each other and have a controller."""
        ids = {broker.id for broker in self.running}
        return agreed_view(
            self.running,
            lambda view: view.brokers == ids and view.controller in ids and right(view),
            KNOWN_WITHIN_S,
        )

    def controller(self) -> MigratingBroker:
        return self.broker(self.agreed().controller)

    def kinds(self) -> list[str]:
        return [broker.kind for broker in self.brokers]

    def controller_last(self) -> list[MigratingBroker]:
        """As brokers are replaced: the fewest changes of the controller."""
        controller = self.controller()
        return sorted(self.brokers, key=lambda broker: (broker is controller, broker.id))

    def logs(self, last: int = 40) -> str:
        return "\n".join(f"--- {broker.kind} {broker.id}\n{broker.log(last)}" for broker in self.running)

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()


def other(kind: str) -> str:
    return BRAIDLOG if kind == KAFKA else KAFKA


def bootstrap_of(brokers: Iterable[MigratingBroker]) -> str:
    return ",".join(broker.bootstrap_servers for broker in brokers)
