"""A real cluster for tests: brokers as processes on a real ZooKeeper, each of which can be stopped, killed and paused.

with Cluster() as cluster:
    topic = cluster.create_topic(partitions=6)
    cluster.brokers[0].kill()
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from braidlog.local_cluster.broker_process import BrokerProcess
from braidlog.local_cluster.child_processes import THIS_MACHINE, Machine
from braidlog.local_cluster.local_cluster import replication_settings
from braidlog.local_cluster.zookeeper import ZooKeeper, lasting_ports
from braidlog.testing.broker_instance import TEST_SETTINGS
from braidlog.testing.client_factory import ClientFactory, config_texts

CLUSTER_SETTINGS: Final = {
    **TEST_SETTINGS,
    # Tests that want more say so: one replica is made, and found offline, the soonest.
    **replication_settings(1),
    # Spread over the brokers, so that each coordinates something.
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # A death is noticed soon, and a busy machine is not taken for a dead one.
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "20000",
}
_CLOSE_S: Final = 10.0


class ClusterBroker:
    """One broker of a cluster, running or not; it comes back to its port and its data."""

    def __init__(
        self, broker_id: int, directory: Path, settings: Mapping[str, str], machine: Machine = THIS_MACHINE
    ) -> None:
        self.id = broker_id
        self.host = machine.host
        self.port = lasting_ports(1)[0]
        self.data_dir = directory / f"broker-{broker_id}"
        self.settings = {**settings, "broker.id": str(broker_id)}
        self._machine = machine
        self._process = BrokerProcess(directory / f"broker-{broker_id}.log", f"broker {broker_id}", machine.prefix)

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def http_address(self) -> str:
        """Where metrics and health are served; empty unless `braidlog.http.listen` is set."""
        return self._process.http_address

    def start(self) -> None:
        """Start, again if it was stopped or killed, and wait until clients are served."""
        if not self.is_running:
            self.begin()
            self.wait_until_ready()

    def begin(self) -> None:
        """Start without waiting for it to be ready."""
        own = {"log.dirs": str(self.data_dir), "listeners": f"PLAINTEXT://{self.host}:{self.port}"}
        arguments = [word for key, value in (own | self.settings).items() for word in ("--set", f"{key}={value}")]
        self._process.begin(arguments)

    def wait_until_ready(self) -> None:
        self._process.wait_until_ready()

    def run_from(self, source: str | Path | None) -> None:
        """From the next start on, run the braidlog in this directory, as `PYTHONPATH` names it; None is this one's."""
        before = () if source is None else ("env", f"PYTHONPATH={source}")
        self._process.prefix = (*self._machine.prefix, *before)

    def stop(self) -> None:
        """A clean stop, as SIGTERM causes, with controlled shutdown. Raises BrokerFailed if the broker had died."""
        self._process.stop()

    def kill(self) -> None:
        """A crash, as SIGKILL causes; the others notice when its ZooKeeper session has ended."""
        self._process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """It keeps its connections and says nothing, as a stalled machine does."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def log(self, last: int = 80) -> str:
        """The last lines that it logged, over all of its lives."""
        return self._process.log(last)


class Cluster(ClientFactory):
    """`with Cluster() as cluster:`, or `start` and `close`.

    `settings` are those of every broker, by Kafka's names. `zookeeper` is one that runs, a new one if none is given;
    with a `chroot` several clusters share it. `directory` is kept if it is given, and a temporary one if not.
    There are so many `brokers`, or one on each of the `machines`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        directory: str | Path | None = None,
        zookeeper: ZooKeeper | None = None,
        chroot: str = "",
        machines: Sequence[Machine] = (),
    ) -> None:
        super().__init__()
        self._own_directory = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="braidlog-cluster-") if directory is None else directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._own_zookeeper = zookeeper is None
        self.zookeeper = zookeeper or ZooKeeper(directory=self.directory / "zookeeper")
        self.zookeeper_connect = f"{self.zookeeper.connect}{chroot}"
        common = {**CLUSTER_SETTINGS, "zookeeper.connect": self.zookeeper_connect, **config_texts(settings or {})}
        self.brokers = [
            ClusterBroker(number, self.directory, common, machine)
            for number, machine in enumerate(machines or [THIS_MACHINE] * brokers)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, for any client; the same over restarts."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self) -> Self:
        """Start what is not running, and wait until all of it serves."""
        if self._own_zookeeper:
            self.zookeeper.start()
        started = [broker for broker in self.brokers if not broker.is_running]
        for broker in started:
            broker.begin()
        for broker in started:
            broker.wait_until_ready()
        return self

    def close(self) -> None:
        """Close the clients it gave out, end everything, and remove the data unless the caller keeps it."""
        try:
            self.close_clients(_CLOSE_S if any(broker.is_running for broker in self.brokers) else 0.0)
        finally:
            for broker in self.brokers:
                broker.kill()
            if self._own_zookeeper:
                self.zookeeper.stop()
            if self._own_directory:
                shutil.rmtree(self.directory, ignore_errors=True)

    def log(self, last: int = 40) -> str:
        """The last lines of every broker."""
        return "\n".join(f"--- broker {broker.id}\n{broker.log(last)}" for broker in self.brokers)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        up = sum(broker.is_running for broker in self.brokers)
        return f"<braidlog.testing.Cluster, {up} of {len(self.brokers)} brokers run>"
