"""A cluster of brokers on this machine, for as long as somebody wants it: started, watched, stopped in the right order.

It runs in the main thread: when that ends, however it does, everything ends. A broker that dies is reported and left as
it is, so that one can see what the others do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Timer
from typing import Final, NamedTuple

from braidlog.config.properties import parse_properties
from braidlog.core.errors import UserError
from braidlog.core.types import Endpoint
from braidlog.local_cluster.broker_process import START_TIMEOUT_S, STOP_TIMEOUT_S, BrokerFailed, BrokerProcess
from braidlog.local_cluster.child_processes import exit_text
from braidlog.local_cluster.cluster_directory import ClusterDirectory
from braidlog.local_cluster.zookeeper import ZooKeeper, ZooKeeperFailed, ZooKeeperServer
from braidlog.net.listener import bind

# As many as Kafka has of its internal topics: one may fail while another is being restarted.
_MOST_REPLICAS: Final = 3
# What is changed of the defaults; whoever sets something is given that.
_SETTINGS: Final = {
    # A broker that was killed is missed soon, and can come back soon.
    "zookeeper.session.timeout.ms": "6000",
    "braidlog.http.listen": "127.0.0.1:0",
}
# Of a ZooKeeper whose data shall be there tomorrow.
_LASTING: Final = {"forceSync": "yes", "autopurge.snapRetainCount": "3", "autopurge.purgeInterval": "1"}
_WAITS_FOR_SESSION: Final = "is still registered, by session"
_TICK_S: Final = 0.02
_WATCH_S: Final = 0.2
_LAST_LINES: Final = 15
# After so long somebody wants to know what is waited for; then every so often.
_SAY_AFTER_S: Final = 5.0


def replication_settings(brokers: int) -> dict[str, str]:
    """Three replicas, or as many as there are brokers: with three, nothing acknowledged is lost with one of them."""
    replicas = min(brokers, _MOST_REPLICAS)
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
    }


class BrokerAddress(NamedTuple):
    broker_id: int
    address: str
    pid: int
    # Of metrics and health; empty where there are none.
    http: str
    log: str


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """A cluster that is ready: where everything of it is."""

    cluster_id: str
    zookeeper: str
    # None of one that was running already.
    zookeeper_pid: int | None
    brokers: tuple[BrokerAddress, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)


class _Broker:
    def __init__(self, broker_id: int, address: str, process: BrokerProcess) -> None:
        self.id = broker_id
        self.address = address
        self.process = process
        self.is_ready = False
        self.said_that_it_waits = False


class LocalCluster:
    """`say` is given a line for people where something has to be known: what is waited for, who died."""

    def __init__(
        self,
        directory: ClusterDirectory,
        host: str,
        ports: Sequence[int],
        settings: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._host = host
        self._settings = settings
        self._say = say
        self._zookeeper: ZooKeeper | None = None
        self._brokers = [
            _Broker(number, f"{host}:{port}", BrokerProcess(directory.log_path(number), f"broker {number}"))
            for number, port in enumerate(ports)
        ]
        self._began = time.monotonic()
        # What ended without being asked to.
        self.died: list[str] = []

    # Start

    def start(self) -> ClusterAddresses:
        """Raises UserError, in one line, with nothing left running."""
        self._began = time.monotonic()
        self._check()
        try:
            self._directory.record(len(self._brokers))
            connect = self._directory.zookeeper or self._start_zookeeper()
            for broker in self._brokers:
                self._directory.write_properties(broker.id, self._settings_of(broker, connect))
                file = self._directory.properties_path(broker.id)
                broker.process.begin(["--config", str(file)], self._directory.lock)
                self._directory.write_pid(broker.id, broker.process.pid)
            self._wait_until_ready()
            return self._addresses(connect)
        except BaseException:
            self._kill()
            raise

    def _check(self) -> None:
        if find_spec("kazoo") is None:
            raise UserError("a cluster takes a package that is not installed (kazoo): pip install 'braidlog[cluster]'")
        for broker in self._brokers:
            host, _, port = broker.address.rpartition(":")
            try:
                bind(Endpoint("PLAINTEXT", host.strip("[]"), int(port))).close()
            except UserError as problem:
                raise UserError(f"broker {broker.id} cannot listen on {broker.address}: {problem}") from problem
        missed = range(len(self._brokers), self._directory.brokers)
        if missed:
            self._say(
                f"{self._directory.path} has {self._directory.brokers} brokers, and {len(missed)} of them are not "
                "started: partitions there are offline"
            )

    def _start_zookeeper(self) -> str:
        self._zookeeper = ZooKeeper(directory=self._directory.zookeeper_path, properties=_LASTING)
        (server,) = self._zookeeper.servers
        try:
            self._zookeeper.start()
        except ZooKeeperFailed as problem:
            reason, _, lines = str(problem).partition("\n")
            self._quote(lines)
            raise UserError(f"{reason.rstrip(':')}; its log is {server.log_path}") from problem
        return self._zookeeper.connect

    def _settings_of(self, broker: _Broker, connect: str) -> dict[str, str]:
        return {
            "broker.id": str(broker.id),
            "listeners": f"PLAINTEXT://{broker.address}",
            "log.dirs": str(self._directory.data_path(broker.id).absolute()),
            "zookeeper.connect": connect,
            **_SETTINGS,
            **replication_settings(len(self._brokers)),
            **self._settings,
        }

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        say_at = time.monotonic() + _SAY_AFTER_S
        while waited := [broker for broker in self._brokers if not broker.is_ready]:
            if time.monotonic() > say_at:
                say_at += 2 * _SAY_AFTER_S
                self._tell_of_start(waited)
            if time.monotonic() > deadline:
                names = ", ".join(str(broker.id) for broker in waited)
                raise UserError(f"not ready after {START_TIMEOUT_S:g} s: broker {names}; see the logs")
            for broker in waited:
                try:
                    broker.is_ready = broker.process.poll_ready(_TICK_S) is not None
                except BrokerFailed as problem:
                    raise UserError(self._why_not_started(broker)) from problem
                self._tell_of_session(broker)

    def _tell_of_start(self, waited: Sequence[_Broker]) -> None:
        for broker in waited:
            said = broker.process.log_of_this_life().splitlines()[-1:]
            self._say(f"broker {broker.id} is not ready yet; the last it said: {said[0] if said else 'nothing'}")

    def _why_not_started(self, broker: _Broker) -> str:
        code = broker.process.exit_code
        assert code is not None
        lines = broker.process.log_of_this_life().splitlines()[-_LAST_LINES:]
        said = [line.removeprefix("braidlog: ") for line in lines if line.startswith("braidlog: ")]
        where = f"its log is {broker.process.log_path}"
        if said:
            return f"broker {broker.id} did not start ({exit_text(code)}): {said[-1]}; {where}"
        self._quote("\n".join(lines))
        return f"broker {broker.id} did not start ({exit_text(code)}); its last lines are above, {where}"

    def _tell_of_session(self, broker: _Broker) -> None:
        """After a kill -9 the name of a broker is its dead predecessor's, until ZooKeeper ends that session."""
        if broker.is_ready or broker.said_that_it_waits or time.monotonic() - self._began < 1.0:
            return
        for line in broker.process.log_of_this_life().splitlines():
            if _WAITS_FOR_SESSION in line:
                broker.said_that_it_waits = True
                seconds = line.partition("waiting up to ")[2].partition(" s")[0]
                self._say(f"broker {broker.id} was killed, and waits up to {seconds} s until its old session has ended")

    def _addresses(self, connect: str) -> ClusterAddresses:
        return ClusterAddresses(
            self._cluster_id(),
            connect,
            None if self._zookeeper is None else self._zookeeper.servers[0].pid,
            tuple(
                BrokerAddress(
                    broker.id,
                    broker.address,
                    broker.process.pid,
                    broker.process.http_address,
                    str(broker.process.log_path),
                )
                for broker in self._brokers
            ),
        )

    def _cluster_id(self) -> str:
        text = (self._directory.data_path(0) / "meta.properties").read_text()
        return next(pair.value for pair in parse_properties(text) if pair.key == "cluster.id")

    @property
    def seconds(self) -> float:
        """Since the start began."""
        return time.monotonic() - self._began

    # Watch

    def watch(self) -> None:
        """Returns when no broker is left; before that only an interruption ends it."""
        while self._look_around():
            time.sleep(_WATCH_S)

    def _look_around(self) -> bool:
        """Say who has died since the last look; returns whether a broker is left."""
        for broker in self._brokers:
            code = broker.process.exit_code
            if code is None or not broker.is_ready:
                continue
            broker.is_ready = False
            self._directory.write_pid(broker.id, None)
            self._say(f"broker {broker.id} (pid {broker.process.pid}) has ended: {exit_text(code)}. Its last lines:")
            self._quote(broker.process.log(_LAST_LINES))
            self._say(f"to start it again: braidlog serve --config {self._directory.properties_path(broker.id)}")
            self.died.append(f"broker {broker.id} ({exit_text(code)})")
        if self._zookeeper is not None:
            (server,) = self._zookeeper.servers
            code = server.exit_code
            if code is not None:
                self._zookeeper = None
                self._say(f"ZooKeeper (pid {server.pid}) has ended: {exit_text(code)}. Its last lines:")
                self._quote(server.log(_LAST_LINES))
                self._say(
                    "the brokers serve clients without it, and nothing in the cluster can change: press Ctrl-C, "
                    "and start the cluster again"
                )
                self.died.append(f"ZooKeeper ({exit_text(code)})")
        return any(broker.is_ready for broker in self._brokers)

    def _quote(self, lines: str) -> None:
        for line in lines.splitlines():
            self._say(f"  {line}")

    # Stop

    def stop(self) -> None:
        """Brokers one after the other, each with a controlled shutdown, for which they need ZooKeeper; then that."""
        self._look_around()
        try:
            for broker in self._brokers:
                if broker.is_ready:
                    with self._telling(
                        f"broker {broker.id} is still stopping, for {STOP_TIMEOUT_S:g} s at most; another Ctrl-C kills "
                        f"all that runs. Its log is {broker.process.log_path}"
                    ):
                        self._stop_one(broker)
            if self._zookeeper is not None:
                with self._telling("ZooKeeper is still stopping"):
                    self._zookeeper.each(ZooKeeperServer.stop)
        except BaseException:
            self._kill()
            raise

    @contextmanager
    def _telling(self, line: str) -> Iterator[None]:
        """Say so where it takes long."""
        timer = Timer(_SAY_AFTER_S, self._say, (line,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _stop_one(self, broker: _Broker) -> None:
        broker.is_ready = False
        try:
            broker.process.stop()
            self._directory.write_pid(broker.id, None)
        except BrokerFailed as problem:
            reason, _, lines = str(problem).partition("\n")
            self._say(reason)
            self._quote(lines)
            self.died.append(reason.rstrip(":"))

    def _kill(self) -> None:
        for broker in self._brokers:
            broker.process.kill()
            self._directory.write_pid(broker.id, None)
        if self._zookeeper is not None:
            self._zookeeper.stop()
