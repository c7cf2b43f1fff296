"""A real broker for the length of a test: started in a moment, on a free port, with data that goes when it does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from braidlog.local_cluster.broker_process import BrokerFailed
from braidlog.testing.broker_instance import TEST_SETTINGS, BrokerInstance
from braidlog.testing.broker_security import BrokerSecurity, Library, Mechanism
from braidlog.testing.client_factory import ClientFactory, config_texts

if TYPE_CHECKING:
    from braidlog.client.admin.scram import ScramMechanism

__all__ = ["Broker", "BrokerFailed", "Kind"]

Kind = Literal["thread", "process"]
KINDS: Final[tuple[Kind, ...]] = ("thread", "process")

_LOOPBACK: Final = "127.0.0.1"
_CLOSE_S: Final = 10.0


class Broker(ClientFactory):
    """`with Broker() as broker:`, or `start` and `close`.

    `kind` is "thread" (in this process, the quickest) or "process" (can be killed). `settings` are the broker's, by
    Kafka's names. `data_dir` is kept if it is given, and a temporary one if not.

    With `tls` it speaks TLS, with certificates of its own; "mutual" asks clients for theirs. With `users`, passwords by
    name, clients log in with the `mechanism`. `client_settings` has what a client needs; those made here have it.
    """

    def __init__(
        self,
        kind: Kind = "thread",
        *,
        settings: Mapping[str, object] | None = None,
        data_dir: str | Path | None = None,
        port: int = 0,
        tls: bool | Literal["mutual"] = False,
        users: Mapping[str, str] | None = None,
        mechanism: Mechanism = "SCRAM-SHA-512",
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; there are {' and '.join(map(repr, KINDS))}")
        self.kind: Kind = kind
        self.settings = {**TEST_SETTINGS, **config_texts(settings or {})}
        self.host = _LOOPBACK
        self.port = port
        self._security = BrokerSecurity(tls, dict(users or {}), mechanism)
        self._setup_port = 0
        self._given_data_dir = None if data_dir is None else Path(data_dir)
        self._place: Path | None = None
        self._life: BrokerInstance | None = None
        super().__init__()

    # Life

    def start(self) -> Self:
        """Start, again if it was stopped or killed: on the same port, over the same data."""
        if self.is_running:
            return self
        is_first = self._place is None
        if self._place is None:
            self._place = Path(tempfile.mkdtemp(prefix="braidlog-"))
        life = self._new_instance(self._place / "broker.log")
        try:
            self.port = life.start(self._all_settings())
        except BaseException:
            if is_first:
                self._remove_place()
            raise
        self._life = life
        if is_first and self._security.scram_mechanism is not None:
            try:
                self._create_users(self._security.scram_mechanism)
            except BaseException:
                self.close()
                raise
        return self

    def _all_settings(self) -> dict[str, str]:
        own = {"log.dirs": str(self.data_dir), "listeners": f"PLAINTEXT://{self.host}:{self.port}"}
        if not self._security.is_needed:
            return {**self.settings, **own}
        if not self._setup_port:
            from braidlog.local_cluster.zookeeper import lasting_ports

            (self._setup_port,) = lasting_ports(1)
        self._security.make_certificates(self._certificates)
        own["listeners"] = f"CLIENTS://{self.host}:{self.port},SETUP://{self.host}:{self._setup_port}"
        return {**self._security.settings(self._certificates), **self.settings, **own}

    def _create_users(self, mechanism: ScramMechanism) -> None:
        from braidlog.client.admin.admin import admin_over
        from braidlog.client.admin.scram import ScramUpsertion

        with self._cluster() as cluster:
            changes = [ScramUpsertion(name, password, mechanism) for name, password in self._security.users.items()]
            admin_over(cluster).alter_scram_users(changes).raise_for_errors()

    def _new_instance(self, log_path: Path) -> BrokerInstance:
        if self.kind == "thread":
            from braidlog.testing.in_process import BrokerThread

            return BrokerThread()
        from braidlog.local_cluster.broker_process import BrokerProcess

        return BrokerProcess(log_path)

    def stop(self) -> None:
        """A clean stop, as SIGTERM causes; `start` brings it back. Raises BrokerFailed if the broker had died."""
        life, self._life = self._life, None
        if life is not None:
            life.stop()

    def kill(self) -> None:
        """A crash, as SIGKILL causes; `start` brings it back. Only for kind "process"."""
        life = self._life
        if life is not None:
            life.kill()
            self._life = None

    def restart(self) -> None:
        """A clean stop and a start, on the same port, over the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Close the clients it gave out, stop, and remove the data unless the caller said where to keep it."""
        try:
            self.close_clients(_CLOSE_S if self.is_running else 0.0)
        finally:
            try:
                self.stop()
            finally:
                self._remove_place()

    def _remove_place(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"at {self.bootstrap_servers}" if self.is_running else "stopped"
        return f"<braidlog.testing.Broker in a {self.kind}, {state}>"

    # What tests need of it

    @property
    def is_running(self) -> bool:
        return self._life is not None and self._life.is_running

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for any client; known once it was started, and the same after a restart."""
        if not self.port:
            raise BrokerFailed("the broker has no port yet: start it first, or use it in a `with`")
        return f"{self.host}:{self.port}"

    @property
    def _setup_servers(self) -> str:
        return f"{self.host}:{self._setup_port}" if self._setup_port else self.bootstrap_servers

    def client_settings(self, library: Library = "braidlog", *, user: str | None = None) -> dict[str, Any]:
        """What a client of that library needs to be let in, with the address; as `user`, or as the first of them.

        For "braidlog", "kafka-python" and "aiokafka" they are keyword arguments, for "confluent-kafka" and "java"
        properties.
        """
        dotted = library in ("confluent-kafka", "java")
        address = {"bootstrap.servers" if dotted else "bootstrap_servers": self.bootstrap_servers}
        if not self._security.is_needed:
            return address
        return {**address, **self._security.client_settings(library, user, self._certificates)}

    def _client_defaults(self) -> dict[str, Any]:
        return self.client_settings()

    @property
    def _certificates(self) -> Path:
        if self._place is None:
            raise BrokerFailed("the broker has no certificates yet: start it first, or use it in a `with`")
        return self._place / "tls"

    @property
    def data_dir(self) -> Path:
        if self._given_data_dir is not None:
            return self._given_data_dir
        if self._place is None:
            raise BrokerFailed("the broker has no data directory while it is not started")
        return self._place / "data"

    @property
    def pid(self) -> int:
        """The process it runs in: for kind "thread" this one."""
        if self._life is None:
            raise BrokerFailed("the broker is not running")
        return self._life.pid

    def log(self, last: int = 80) -> str:
        """The last lines of a process's log; a thread's go to the logger `braidlog`, which pytest shows itself."""
        return self._life.log(last) if self._life is not None else self._log_left_behind(last)

    def _log_left_behind(self, last: int) -> str:
        if self._place is None or self.kind == "thread":
            return ""
        return self._new_instance(self._place / "broker.log").log(last)
