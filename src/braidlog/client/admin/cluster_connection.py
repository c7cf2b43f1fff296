"""A cluster as the command line sees it: nodes by id, leaders from metadata, errors as exceptions."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final
from weakref import finalize

from braidlog.client.admin.broker_connection import BrokerConnection
from braidlog.client.broker_errors import broker_error, check
from braidlog.client.errors import ClosedError, NoConnection, RequestTimeout
from braidlog.client.network.engine import Engine
from braidlog.client.network.nodes import Nodes, parse_servers
from braidlog.client.requests.metadata import METADATA, metadata_request
from braidlog.client.runtime import ClientRuntime, current_runtime
from braidlog.client.settings import ADMIN, Settings, definitions
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    NONE,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from braidlog.net.outbound.connector import Address
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.generated.metadata import MetadataResponse, MetadataResponseTopic

CLIENT_ID: Final = "braidlog-cli"
SETUP: Final = "socket.connection.setup.timeout.ms"
_SETUP_MS: Final = 10_000
# A request after the deadline gets a moment all the same: a broker that is there answers within it.
_LEAST_S: Final = 0.1

# A topic that is being created has no leader for a moment; one that a broker will not create stays unknown.
CREATION_S: Final = 3.0
_PASSING: Final = (LeaderNotAvailableError.code, UnknownTopicOrPartitionError.code)


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; the port may be left out."""
    return parse_servers(tuple(text.split(",")))


class ClusterConnection:
    """`settings` have Kafka's dotted names, as a client's property file has them; `bootstrap` wins over theirs."""

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float = 30.0,
        settings: Mapping[str, Any] | None = None,
        deadline: float | None = None,
        runtime: ClientRuntime | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        # When a call that takes several requests has to be over, on the monotonic clock.
        self.deadline = deadline
        self.settings = dict(settings or {})
        self.addresses: dict[int, Address] = {}
        self.controller_id = -1
        self.cluster_id = ""
        parse_bootstrap(bootstrap)
        runtime = runtime or current_runtime()
        self._clock = runtime.clock
        self._retry = runtime.retry
        self._network = runtime.nodes(_settings(bootstrap, timeout_s, self.settings))
        self._engine = runtime.new_engine("cluster")
        self._nodes: dict[int, BrokerConnection] = {}
        # One that was not closed must not leave its thread and its connections behind.
        self._finalizer = finalize(self, _end_unclosed, self._engine, self._network, os.getpid())
        self._finalizer.atexit = False
        try:
            self._first = self._connect_any()
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
                self._engine.soon(self._network.close)
            self._engine.close()

    def _connect_any(self) -> BrokerConnection:
        """The first that answers: of the brokers that are known, then of the servers given."""
        return self._connected(self._any(), "a broker of bootstrap.servers")

    async def _any(self) -> PipelinedConnection:
        self._network.learn(self.addresses)
        try:
            return await self._network.any()
        except NoConnection:
            if not self.addresses:
                raise
            self._network.rebootstrap()
            return await self._network.any()

    def _connected(self, connecting: Coroutine[Any, Any, PipelinedConnection], who: str) -> BrokerConnection:
        # Without a deadline sockets have their own time to open in.
        left_s = None if self.deadline is None else self._time_left_s()
        try:
            connection = self._engine.run(connecting, left_s)
        except RequestTimeout as problem:
            if left_s is None:
                raise NoConnection(str(problem)) from problem
            message = f"{who} did not answer within the {left_s:.1f} s that were left"
            raise NoConnection(f"{message}; see that it runs, or give it longer") from problem
        return BrokerConnection(self._engine, connection, self._time_left_s)

    def _time_left_s(self) -> float:
        if self.deadline is None:
            return self.timeout_s
        return max(min(self.timeout_s, self.deadline - self._clock.monotonic()), _LEAST_S)

    # Nodes

    @property
    def any(self) -> BrokerConnection:
        if not self._first.is_open:
            self._first = self._connect_any()
        return self._first

    @property
    def broker_ids(self) -> list[int]:
        if not self.addresses:
            self.metadata([])
        return sorted(self.addresses)

    def node(self, broker_id: int) -> BrokerConnection:
        known = self._nodes.get(broker_id)
        if known is not None and known.is_open:
            return known
        if broker_id not in self.addresses:
            self.metadata([])
        if broker_id not in self.addresses:
            raise self.absent(broker_id)
        self._nodes[broker_id] = self._connected(self._connection(broker_id), f"broker {broker_id}")
        return self._nodes[broker_id]

    def absent(self, broker_id: int) -> UserError:
        """Why a broker that metadata does not name cannot be asked: it is stopped, or there is none."""
        up = ", ".join(map(str, sorted(self.addresses))) or "none"
        if any(broker_id in each.replica_nodes for topic in self.metadata(None) for each in topic.partitions):
            return UserError(f"broker {broker_id} is unreachable: it holds replicas, but is not up (up: {up})")
        return UserError(f"there is no broker {broker_id} in this cluster; it has {up}")

    async def _connection(self, broker_id: int) -> PipelinedConnection:
        self._network.learn(self.addresses)
        return await self._network.connection(broker_id)

    def forget(self, broker_id: int) -> None:
        """Drop a connection that failed; the next use makes a new one."""
        node = self._nodes.pop(broker_id, None)
        if node is not None:
            node.close()

    @property
    def controller(self) -> BrokerConnection:
        if self.controller_id < 0:
            self.metadata([])
        return self.node(self.controller_id) if self.controller_id >= 0 else self.any

    # Metadata

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> list[MetadataResponseTopic]:
        """Describe topics (None: all); refreshes what is known of the brokers."""
        request = metadata_request(topics, create_topics=create)
        try:
            response = self.any.call(METADATA, request, MetadataResponse)
        except NoConnection:
            self._first = self._connect_any()
            response = self._first.call(METADATA, request, MetadataResponse)
        self.addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id or ""
        return response.topics

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic, or the error that says why not; with `create`, what auto-creation makes of it is awaited."""
        retry = self._retry(min(CREATION_S, self.timeout_s))
        while True:
            (topic,) = self.metadata([name], create=create)
            if not (create and _is_coming_up(topic) and retry.again()):
                check(topic.error_code, f"topic {name}")
                return topic

    def leader_of(self, topic: MetadataResponseTopic, partition: int) -> int:
        """The broker that leads a partition."""
        for each in topic.partitions:
            if each.partition_index == partition:
                if each.leader_id < 0:
                    raise broker_error(LeaderNotAvailableError.code, f"{topic.name}-{partition}")
                return each.leader_id
        raise UserError(
            f"topic {topic.name} has no partition {partition}; it has {len(topic.partitions)}, counted from 0"
        )


def _end_unclosed(engine: Engine, network: Nodes, process: int) -> None:
    """Called by the garbage collector, in any thread and inside any call: it takes no lock, and waits for nothing."""
    if os.getpid() == process:
        # RuntimeError: the loop has ended.
        with suppress(RuntimeError):
            engine.loop.call_soon_threadsafe(network.close)
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


def _is_coming_up(topic: MetadataResponseTopic) -> bool:
    if topic.error_code != NONE:
        return topic.error_code in _PASSING
    return any(partition.leader_id < 0 for partition in topic.partitions)
