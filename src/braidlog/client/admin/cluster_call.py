"""One call on a cluster: finds the brokers that it needs, and gives each request what its deadline leaves.

Used on the engine's thread. Connections and metadata are the client's own; a call adds the deadline to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, Final, TypeVar

from braidlog.client.broker_errors import check
from braidlog.client.cluster_view import NO_LEADER, ClusterView, TopicView
from braidlog.client.errors import NoConnection, RequestTimeout
from braidlog.client.metadata import Metadata
from braidlog.client.network.nodes import Nodes
from braidlog.client.runtime import ClientRuntime
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, LeaderNotAvailableError, UnknownTopicOrPartitionError
from braidlog.net.outbound.connector import Address
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.message import Message

Response = TypeVar("Response", bound=Message)

# A request after the deadline gets a moment all the same: a broker that is there answers within it.
_LEAST_S: Final = 0.1
# A topic that is being created has no leader for a moment; one that a broker will not create stays unknown.
_CREATION_S: Final = 3.0
_PASSING: Final = (LeaderNotAvailableError.code, UnknownTopicOrPartitionError.code)


class ClusterCall:
    """Each request takes at most `timeout_s`, and all of them end by `deadline`, on the monotonic clock."""

    def __init__(
        self,
        runtime: ClientRuntime,
        nodes: Nodes,
        metadata: Metadata,
        timeout_s: float,
        deadline: float | None,
        turn: asyncio.Lock,
    ) -> None:
        # Held for a question and its answer: a request that is given up ends its connection, and with it all that
        # other calls have under way there.
        self.turn = turn
        self._runtime = runtime
        self._nodes = nodes
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._deadline = deadline

    def time_left_s(self) -> float:
        """What the next request may take."""
        if self._deadline is None:
            return self._timeout_s
        return max(min(self._timeout_s, self._deadline - self._runtime.clock.monotonic()), _LEAST_S)

    # Brokers

    @property
    def view(self) -> ClusterView:
        """The brokers as the last metadata had them; no topics."""
        return self._metadata.view

    async def broker_ids(self) -> list[int]:
        if not self.view.brokers:
            await self.metadata([])
        return sorted(self.view.brokers)

    async def any(self) -> BrokerConnection:
        """Of the brokers that are known, then of the servers given, the first that answers."""
        who = f"a broker of bootstrap.servers ({', '.join(f'{host}:{port}' for host, port in self._nodes.bootstrap)})"
        try:
            return await self._connected(self._nodes.any(), who)
        except NoConnection:
            if not self._metadata.rebootstrap():
                raise
            return await self._connected(self._nodes.any(), who)

    async def node(self, broker_id: int) -> BrokerConnection:
        """NoConnection also where metadata does not name it: a controller or a leader that has just been elected, or
        was lost, may be missing for a moment. For one that the user names, `absent` says more."""
        if not self._nodes.is_known(broker_id):
            await self.metadata([])
        return await self._connected(self._nodes.connection(broker_id), f"broker {broker_id}", broker_id)

    def learn(self, broker_id: int, address: Address) -> None:
        """A coordinator that metadata does not name yet."""
        self._nodes.learn_one(broker_id, address)

    async def absent(self, broker_id: int) -> UserError:
        """Why a broker that metadata does not name cannot be asked: it is stopped, or there is none."""
        topics = await self.metadata(None)
        up = ", ".join(map(str, sorted(self.view.brokers))) or "none"
        if any(broker_id in each.replicas for topic in topics for each in topic.partitions):
            return UserError(f"broker {broker_id} is unreachable: it holds replicas, but is not up (up: {up})")
        return UserError(f"there is no broker {broker_id} in this cluster; it has {up}")

    async def _connected(
        self, connecting: Coroutine[Any, Any, PipelinedConnection], who: str, broker_id: int | None = None
    ) -> BrokerConnection:
        # Without a deadline sockets have their own time to open in.
        left_s = None if self._deadline is None else self.time_left_s()
        try:
            async with asyncio.timeout(left_s):
                return BrokerConnection(await connecting, self)
        except (RequestTimeout, TimeoutError) as problem:
            if left_s is None:
                raise NoConnection(str(problem)) from problem
            # The pause after a failure may take the rest of the time: then that failure is what there is to say.
            failure = self._nodes.last_problem(broker_id)
            if failure is not None:
                raise NoConnection(str(failure)) from failure
            message = f"{who} did not answer within the {left_s:.1f} s that were left"
            raise NoConnection(f"{message}; see that it runs, or give it longer") from problem

    # Metadata

    async def metadata(self, topics: Collection[str] | None, *, create: bool = False) -> list[TopicView]:
        """Describe topics (None: all); refreshes what is known of the brokers."""
        try:
            return await self._ask(topics, create)
        except NoConnection:
            # The connection may have been lost while it was idle.
            return await self._ask(topics, create)

    async def _ask(self, topics: Collection[str] | None, create: bool) -> list[TopicView]:
        # By the deadline there is a connection, and it is the one that is used.
        await self.any()
        try:
            asked = await self._metadata.ask(topics, create_topics=create, timeout_s=self.time_left_s())
        except RequestTimeout as problem:
            raise NoConnection(str(problem)) from problem
        return list(asked.topics.values())

    async def topic(self, name: str, *, create: bool = False) -> TopicView:
        """One topic, or the error that says why not; with `create`, what auto-creation makes of it is awaited."""
        retry = self._runtime.retry(min(_CREATION_S, self._timeout_s))
        while True:
            (topic,) = await self.metadata([name], create=create)
            if not (create and _is_coming_up(topic) and await retry.again()):
                check(topic.error_code, f"topic {name}")
                return topic


class BrokerConnection:
    """A connection for the time that its call has."""

    def __init__(self, connection: PipelinedConnection, call: ClusterCall) -> None:
        self.address = connection.address
        self.offers = connection.offers
        self.version_for = connection.version_for
        self._connection = connection
        # What it is part of, for a question about the cluster as a whole.
        self.cluster = call

    @property
    def peer(self) -> str:
        """The address that the name stood for."""
        return self._connection.peer

    async def call(
        self,
        api_key: int,
        request: Message,
        answer: type[Response],
        *,
        at_most: int | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        left_s = self.cluster.time_left_s()
        if timeout_s is not None:
            left_s = min(left_s, timeout_s)
        try:
            return await self._connection.call(api_key, request, answer, at_most=at_most, timeout_s=left_s)
        except RequestTimeout as problem:
            # Callers do the same after either: the connection is not used any more.
            raise NoConnection(str(problem)) from problem


def _is_coming_up(topic: TopicView) -> bool:
    if topic.error_code != NONE:
        return topic.error_code in _PASSING
    return any(partition.leader == NO_LEADER for partition in topic.partitions)
