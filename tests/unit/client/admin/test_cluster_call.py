"""A call finds its brokers over the client's own connections and metadata, and is over by its deadline."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.errors import NoConnection
from braidlog.client.metadata import Metadata
from braidlog.client.requests.metadata import METADATA
from braidlog.client.runtime import ClientRuntime
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.clock import Clock, ManualClock, SystemClock
from braidlog.core.protocol_errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from braidlog.wire.generated.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from braidlog.wire.message import Message
from support.scripted_broker import HANG_UP, SILENCE, Answer, ScriptedBroker


class World:
    """One broker, and calls on it; `answers` come before what it says otherwise."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.broker = ScriptedBroker(self._answer)
        self.answers: list[Answer] = []
        self.leader = 1
        self.runtime = ClientRuntime(clock or SystemClock())

    def _answer(self, _: int, request: Message) -> Answer:
        assert isinstance(request, MetadataRequest)
        if self.answers:
            return self.answers.pop(0)
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=self.leader, replica_nodes=[1, 3])]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.broker.port)],
            cluster_id="c",
            controller_id=1,
            topics=[MetadataResponseTopic(name="t", partitions=partitions)],
        )

    @contextmanager
    def call(self, timeout_s: float = 5.0, within_s: float | None = None, **given: object) -> Iterator[ClusterCall]:
        settings = Settings.of(
            ADMIN,
            None,
            {
                "bootstrap_servers": self.broker.address,
                "request_timeout_ms": round(timeout_s * 1000),
                "reconnect_backoff_ms": 1,
                **given,
            },
        )
        deadline = None if within_s is None else self.runtime.clock.monotonic() + within_s
        with closing(self.runtime.nodes(settings)) as nodes, closing(Metadata(nodes, settings)) as metadata:
            self.nodes = nodes
            yield ClusterCall(self.runtime, nodes, metadata, timeout_s, deadline, asyncio.Lock())

    def asked_for_metadata(self) -> int:
        return [key for key, _, _ in self.broker.requests].count(METADATA)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_brokers_are_learnt_once_and_connected_to_by_id() -> None:
    world = World()
    async with world.broker:
        with world.call() as call:
            assert await call.broker_ids() == [1]
            assert await call.broker_ids() == [1]
            assert call.view.controller_id == 1
            assert (await call.node(1)).version_for(METADATA) == 12
            # That of bootstrap.servers, and that to the broker by its id.
            assert world.broker.connections == 2
            assert world.asked_for_metadata() == 1


async def test_a_broker_that_is_not_there_is_explained() -> None:
    world = World()
    async with world.broker:
        with world.call() as call:
            assert "broker 3 is unreachable: it holds replicas, but is not up (up: 1)" in str(await call.absent(3))
            assert "there is no broker 9 in this cluster; it has 1" in str(await call.absent(9))


async def test_a_broker_that_metadata_does_not_name_may_come_back() -> None:
    """A controller that is being replaced, say: what is raised is tried again."""
    world = World()
    async with world.broker:
        with world.call() as call, pytest.raises(NoConnection, match="there is no broker 9"):
            await call.node(9)


async def test_metadata_is_asked_for_once_more_after_a_lost_connection() -> None:
    world = World()
    async with world.broker:
        with world.call() as call:
            world.answers = [HANG_UP]
            assert [topic.name for topic in await call.metadata(None)] == ["t"]
            world.answers = [HANG_UP, HANG_UP]
            with pytest.raises(NoConnection):
                await call.metadata(None)


async def test_a_request_takes_no_longer_than_the_deadline_leaves() -> None:
    """Time is the test's own: only for what is never answered does it take some."""
    clock = ManualClock()
    world = World(clock)
    async with world.broker:
        with world.call(timeout_s=60.0, within_s=600.0) as call:
            assert call.time_left_s() == 60.0
            connected = await call.any()
            clock.advance(599.75)
            assert call.time_left_s() == 0.25
            world.answers = [SILENCE]
            with pytest.raises(NoConnection, match="did not answer Metadata in time"):
                await connected.call(METADATA, MetadataRequest(), MetadataResponse)


async def test_after_the_deadline_there_is_still_a_moment_for_a_broker_that_is_there() -> None:
    clock = ManualClock()
    world = World(clock)
    async with world.broker:
        with world.call(timeout_s=60.0, within_s=600.0) as call:
            connected = await call.any()
            clock.advance(601.0)
            assert call.time_left_s() == 0.1
            world.answers = [SILENCE]
            with pytest.raises(NoConnection, match="did not answer Metadata in time"):
                await connected.call(METADATA, MetadataRequest(), MetadataResponse)
            # It was asked all the same.
            await until(lambda: world.asked_for_metadata() == 1)


async def test_a_pause_that_outlasts_the_deadline_does_not_hide_the_failure() -> None:
    clock = ManualClock()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        world = World(clock)
        world.broker.port = unused.getsockname()[1]
        with world.call(
            timeout_s=600.0, within_s=600.0, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000
        ) as call:
            first = asyncio.ensure_future(call.any())
            await until(lambda: world.nodes.last_problem(None) is not None)
            first.cancel()
            clock.advance(599.75)
            with pytest.raises(NoConnection, match=rf"no broker answers at 127\.0\.0\.1:{world.broker.port}"):
                await call.any()


async def test_a_listener_that_says_nothing_is_given_up_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world = World(ManualClock())
        world.broker.port = listener.getsockname()[1]
        told = rf"bootstrap\.servers \(127\.0\.0\.1:{world.broker.port}\) did not answer within the 0\.2 s"
        with world.call(within_s=0.2) as call, pytest.raises(NoConnection, match=told):
            await call.any()


async def test_a_topic_that_is_being_created_is_waited_for() -> None:
    world = World(ManualClock())
    async with world.broker:
        with world.call() as call:
            world.leader = -1
            coming = MetadataResponseTopic(name="t", error_code=LeaderNotAvailableError.code)
            world.answers = [MetadataResponse(topics=[coming])]
            waiting = asyncio.ensure_future(call.topic("t", create=True))
            await until(lambda: world.asked_for_metadata() >= 2)
            world.leader = 1
            assert (await waiting).leader_of(0) == 1

            unknown = MetadataResponseTopic(name="t", error_code=UnknownTopicOrPartitionError.code)
            world.answers = [MetadataResponse(topics=[unknown])]
            with pytest.raises(UnknownTopicOrPartitionError, match="topic t: it does not exist"):
                await call.topic("t")
