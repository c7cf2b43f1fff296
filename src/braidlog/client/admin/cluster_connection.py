"""A cluster as the command line sees it: calls that wait in the program's thread for what runs on the engine's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar
from weakref import finalize

from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.cluster_view import TopicView
from braidlog.client.errors import ClosedError
from braidlog.client.metadata import Metadata
from braidlog.client.network.engine import Engine
from braidlog.client.network.nodes import Nodes, parse_servers
from braidlog.client.runtime import ClientRuntime, current_runtime
from braidlog.client.settings import ADMIN, Settings, definitions
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError, UnknownTopicOrPartitionError
from braidlog.net.outbound.connector import Address

CLIENT_ID: Final = "braidlog-cli"
SETUP: Final = "socket.connection.setup.timeout.ms"
_SETUP_MS: Final = 10_000

T = TypeVar("T")


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; the port may be left out."""
    return parse_servers(tuple(text.split(",")))


class ClusterConnection:
    """`settings` have Kafka's dotted names, as a client's property file has them; `bootstrap` wins over theirs.

    Connects at once, unless `connect` says otherwise: then the first call does.
    """

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float = 30.0,
        settings: Mapping[str, Any] | None = None,
        *,
        connect: bool = True,
        runtime: ClientRuntime | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.settings = dict(settings or {})
        # The broker that answered first, and the address that its name stood for.
        self.address = ""
        self.peer = ""
        self._turn = asyncio.Lock()
        parse_bootstrap(bootstrap)
        self._runtime = runtime or current_runtime()
        checked = _settings(bootstrap, timeout_s, self.settings)
        self._nodes = self._runtime.nodes(checked)
        self._metadata = Metadata(self._nodes, checked, create_topics=False, random=self._runtime.random)
        self._engine = self._runtime.new_engine("cluster")
        # One that was not closed must not leave its thread and its connections behind.
        self._finalizer = finalize(self, _end_unclosed, self._engine, self._nodes, os.getpid())
        self._finalizer.atexit = False
        if not connect:
            return
        try:
            self.address, self.peer = self.run(_first)
        except BaseException:
            self._engine.close()
            raise

    def __enter__(self) -> ClusterConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._finalizer.detach()
        if not self._engine.is_closed:
            # After a fork the connections are the parent's, and stay open for it.
            with suppress(ClosedError):
                self._engine.soon(self._nodes.close)
            self._engine.close()

    def run(self, work: Callable[[ClusterCall], Coroutine[Any, Any, T]], deadline: float | None = None) -> T:
        """Wait for `work` on the engine, which is given a call that is over at `deadline`, on the monotonic clock."""
        call = ClusterCall(self._runtime, self._nodes, self._metadata, self.timeout_s, deadline, self._turn)
        return self._engine.run(work(call))

    # What is known of the brokers

    @property
    def addresses(self) -> dict[int, Address]:
        return {each.id: (each.host, each.port) for each in self._metadata.view.brokers.values()}

    @property
    def cluster_id(self) -> str:
        return self._metadata.view.cluster_id

    @property
    def broker_ids(self) -> list[int]:
        return self.run(lambda call: call.broker_ids())

    def absent(self, broker_id: int) -> UserError:
        """Why a broker that metadata does not name cannot be asked: it is stopped, or there is none."""
        return self.run(lambda call: call.absent(broker_id))

    # Topics

    def metadata(self, topics: Collection[str] | None) -> list[TopicView]:
        """Describe topics (None: all); refreshes what is known of the brokers."""
        return self.run(lambda call: call.metadata(topics))

    def topic(self, name: str, *, create: bool = False) -> TopicView:
        """One topic, or the error that says why not; with `create`, what auto-creation makes of it is awaited."""
        return self.run(lambda call: call.topic(name, create=create))

    def leader_of(self, topic: TopicView, partition: int) -> int:
        """The broker that leads a partition."""
        found = topic.partition_with_leader(partition)
        if isinstance(found, UnknownTopicOrPartitionError):
            raise UserError(found.message or "")
        if isinstance(found, ProtocolError):
            raise found
        return found.leader


async def _first(call: ClusterCall) -> tuple[str, str]:
    connection = await call.any()
    return connection.address, connection.peer


def _end_unclosed(engine: Engine, nodes: Nodes, process: int) -> None:
    """Called by the garbage collector, in any thread and inside any call: it takes no lock, and waits for nothing."""
    if os.getpid() == process:
        # RuntimeError: the loop has ended.
        with suppress(RuntimeError):
            engine.loop.call_soon_threadsafe(nodes.close)
            engine.loop.call_soon_threadsafe(engine.close)


def _settings(bootstrap: str, timeout_s: float, given: Mapping[str, Any]) -> Settings:
    timeout_ms = max(1, round(timeout_s * 1000))
    own = {"bootstrap.servers": bootstrap, "request.timeout.ms": timeout_ms}
    defaults = {SETUP: _SETUP_MS, "client.id": CLIENT_ID}
    # A file may serve producers and consumers as well: their settings are left out.
    known = definitions(ADMIN)
    settings = Settings.of(ADMIN, {**defaults, **{key: value for key, value in given.items() if key in known}, **own})
    # A socket that does not open within Kafka's ten seconds will not do so later.
    return settings.limited(SETUP, timeout_ms)
