"""A real broker for the length of a test: started in a moment, on a free port, with data that goes when it does."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack

from braidlog.testing.broker_instance import TEST_SETTINGS, BrokerFailed, BrokerInstance

if TYPE_CHECKING:
    from braidlog.client.admin.admin import Admin
    from braidlog.client.admin.cluster_connection import ClusterConnection
    from braidlog.client.consumer.consumer import Consumer
    from braidlog.client.producer.producer import Producer
    from braidlog.client.typed_settings import AdminSettings, ConsumerSettings, ProducerSettings

__all__ = ["Broker", "BrokerFailed", "Kind"]

Kind = Literal["thread", "process"]
KINDS: Final[tuple[Kind, ...]] = ("thread", "process")

_LOOPBACK: Final = "127.0.0.1"
_CLOSE_S: Final = 10.0
_TOPIC_TIMEOUT_S: Final = 30.0
# The name of a topic may have 249 characters; the number that makes it unique needs some.
_LONGEST_PREFIX: Final = 200

_numbers = itertools.count(1)
_run = secrets.token_hex(3)


class Broker:
    """`with Broker() as broker:`, or `start` and `close`.

    `kind` is "thread" (in this process, the quickest) or "process" (can be killed). `settings` are the broker's, by
    Kafka's names. `data_dir` is kept if it is given, and a temporary one if not.
    """

    def __init__(
        self,
        kind: Kind = "thread",
        *,
        settings: Mapping[str, object] | None = None,
        data_dir: str | Path | None = None,
        port: int = 0,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}; there are {' and '.join(map(repr, KINDS))}")
        self.kind: Kind = kind
        self.settings = {**TEST_SETTINGS, **config_texts(settings or {})}
        self.host = _LOOPBACK
        self.port = port
        self._given_data_dir = None if data_dir is None else Path(data_dir)
        self._place: Path | None = None
        self._life: BrokerInstance | None = None
        # How to close each, and whether that can be given a time.
        self._clients: list[tuple[Callable[..., None], bool]] = []

    # Life

    def start(self) -> Self:
        """Start, again if it was stopped or killed: on the same port, over the same data."""
        if self.is_running:
            return self
        is_first = self._place is None
        if self._place is None:
            self._place = Path(tempfile.mkdtemp(prefix="braidlog-"))
        life = self._new_instance(self._place / "broker.log")
        settings = {
            **self.settings,
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
        }
        try:
            self.port = life.start(settings)
        except BaseException:
            if is_first:
                self._remove_place()
            raise
        self._life = life
        return self

    def _new_instance(self, log_path: Path) -> BrokerInstance:
        if self.kind == "thread":
            from braidlog.testing.in_process import BrokerThread

            return BrokerThread()
        from braidlog.testing.subprocess_broker import BrokerProcess

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
            self._close_clients()
        finally:
            try:
                self.stop()
            finally:
                self._remove_place()

    def _remove_place(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)

    def _close_clients(self) -> None:
        """What they have left to log can be read only while the pipe is open."""
        problems: list[Exception] = []
        patience_s = _CLOSE_S if self.is_running else 0.0
        while self._clients:
            close, takes_time = self._clients.pop()
            try:
                close(patience_s) if takes_time else close()
            except Exception as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

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

    # Topics

    def unique_topic(self, prefix: str = "test") -> str:
        """A topic name that is used nowhere else; nothing is created."""
        return unique_topic(prefix)

    def create_topic(self, name: str | None = None, partitions: int = 1, **configs: object) -> str:
        """Create a topic, under a unique name if none is given; returns the name.

        `configs` are the topic's, with underscores for dots: `cleanup_policy="compact"`, `retention_ms=1000`.
        """
        from braidlog.client.admin.admin import admin_over
        from braidlog.client.admin.topics import NewTopic

        name = unique_topic() if name is None else name
        with self._cluster() as cluster:
            wanted = NewTopic(name, partitions, 1, config_texts(configs))
            admin_over(cluster).create_topics([wanted]).raise_for_errors()
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        from braidlog.client.admin.admin import admin_over

        with self._cluster() as cluster:
            admin_over(cluster).delete_topics([name]).raise_for_errors()

    def _cluster(self) -> ClusterConnection:
        from braidlog.client.admin.cluster_connection import ClusterConnection

        return ClusterConnection(self.bootstrap_servers, _TOPIC_TIMEOUT_S)

    # Clients of braidlog's own; closed with the broker at the latest

    def producer(self, **settings: Unpack[ProducerSettings]) -> Producer:
        from braidlog.client.producer.producer import Producer

        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        producer = Producer(**settings)
        self._clients.append((producer.close, True))
        return producer

    def consumer(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> Consumer:
        """A consumer; of these topics from their beginning, unless the settings say otherwise.

        Without `group_id` it reads all of their partitions by itself.
        """
        from braidlog.client.consumer.consumer import Consumer

        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        settings.setdefault("auto_offset_reset", "earliest")
        consumer = Consumer(*topics, **settings)
        self._clients.append((consumer.close, True))
        return consumer

    def admin(self, **settings: Unpack[AdminSettings]) -> Admin:
        from braidlog.client.admin.admin import Admin

        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        admin = Admin(**settings)
        self._clients.append((admin.close, False))
        return admin


def unique_topic(prefix: str = "test") -> str:
    """A legal name that was never given before, in this process or another."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", prefix).strip("-") or "test"
    return f"{stem[:_LONGEST_PREFIX]}-{_run}-{os.getpid()}-{next(_numbers)}"


def config_texts(configs: Mapping[str, object]) -> dict[str, str]:
    """`retention_ms=1000` and `{"retention.ms": 1000}` say the same; True and False as Kafka writes them."""
    return {
        name if "." in name else name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configs.items()
    }
