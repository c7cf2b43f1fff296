from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from braidlog.client.errors import AuthenticationFailed, ClosedError, NoConnection, RequestTimeout
from braidlog.client.metadata import Metadata
from braidlog.client.network.nodes import Nodes
from braidlog.client.problem_log import ProblemLog
from braidlog.client.settings import PRODUCER, Settings
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    InvalidTopicError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from braidlog.net.outbound.connector import Address
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.generated.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from braidlog.wire.message import Message
from support.scripted_broker import HANG_UP, Answer, ScriptedBroker


async def until(met: Callable[[], bool]) -> None:
    """The broker's answers come through a real socket, so only looking again tells."""
    async with asyncio.timeout(30):
        while not met():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Cluster:
    """What the scripted broker answers metadata requests with."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.asked: list[list[str] | None] = []
        self.broker: ScriptedBroker | None = None
        self.hang_ups = 0
        self.partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)

    def __call__(self, _: int, request: Message) -> Answer:
        assert isinstance(request, MetadataRequest)
        assert self.broker is not None
        self.asked.append(None if request.topics is None else [each.name or "" for each in request.topics])
        if self.hang_ups:
            self.hang_ups -= 1
            return HANG_UP
        names = list(self.topics) if request.topics is None else [each.name or "" for each in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.broker.port)],
            cluster_id="c",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        error = self.topics.get(name, UnknownTopicOrPartitionError.code)
        partitions = [] if error else [self.partition]
        return MetadataResponseTopic(name=name, error_code=error, partitions=partitions)


class World:
    def __init__(self, **settings: object) -> None:
        self.cluster = Cluster()
        self.broker = ScriptedBroker(self.cluster)
        self.cluster.broker = self.broker
        self.given = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, **settings}

    async def __aenter__(self) -> World:
        await self.broker.start()
        settings = Settings.of(PRODUCER, None, {"bootstrap_servers": self.broker.address, **self.given})
        self.nodes = Nodes(settings)
        self.metadata = Metadata(self.nodes, settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.metadata.close()
        self.nodes.close()
        await self.broker.stop()


async def test_a_topic_is_asked_for_once_and_then_known() -> None:
    async with World() as world:
        world.cluster.topics["t"] = 0
        assert (await world.metadata.topic("t", 5.0)).leader_of(0) == 1
        assert (await world.metadata.topic("t", 5.0)).leader_of(0) == 1
        assert world.cluster.asked == [["t"]]
        assert world.nodes.addresses == {1: ("127.0.0.1", world.broker.port)}


async def test_many_who_ask_at_once_share_a_request() -> None:
    async with World() as world:
        world.metadata.want("t")
        await asyncio.gather(*(world.metadata.refreshed() for _ in range(20)))
        assert len(world.cluster.asked) == 1
        assert world.metadata.version == 1


async def test_who_asks_while_a_request_runs_gets_a_later_one() -> None:
    async with World() as world:
        first = asyncio.ensure_future(world.metadata.refreshed())
        await asyncio.sleep(0)
        world.metadata.want("t")
        await world.metadata.refreshed()
        await first
        assert world.cluster.asked[-1] == ["t"]


async def test_a_topic_that_comes_into_being_is_waited_for() -> None:
    async with World() as world:
        world.cluster.topics["t"] = LeaderNotAvailableError.code
        waiting = asyncio.ensure_future(world.metadata.topic("t", 5.0))
        await until(lambda: len(world.cluster.asked) >= 3)
        world.cluster.topics["t"] = 0
        assert (await waiting).leader_of(0) == 1


async def test_a_topic_that_never_comes_is_told_with_what_to_do() -> None:
    async with World() as world:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"topic t after 1 s: it does not exist"):
            await world.metadata.topic("t", 1.0)


async def test_a_name_that_no_topic_can_have_is_told_at_once() -> None:
    async with World() as world:
        world.cluster.topics["?"] = InvalidTopicError.code
        with pytest.raises(InvalidTopicError):
            await world.metadata.topic("?", 60.0)


async def test_failures_are_retried_and_the_last_one_is_named() -> None:
    async with World() as world:
        world.cluster.topics["t"] = 0
        world.cluster.hang_ups = 3
        assert await world.metadata.topic("t", 5.0)
        assert world.metadata.problem is None
        await world.broker.stop()
        with pytest.raises(NoConnection):
            await world.metadata.refreshed()
        with pytest.raises(RequestTimeout, match=r"no metadata of topic u within .* last problem: no broker answers"):
            await world.metadata.topic("u", 1.0)
        await world.broker.start()
        world.cluster.topics["u"] = 0
        assert await world.metadata.topic("u", 5.0)


async def test_listeners_hear_of_changes_and_cannot_break_it(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as world:
        heard: list[int] = []

        def fail(_: object) -> None:
            raise ValueError

        world.metadata.listeners += [fail, lambda view: heard.append(len(view.brokers))]
        await world.metadata.refreshed()
        assert heard == [1]
        assert "a listener of metadata failed" in caplog.text


async def test_metadata_that_is_old_is_asked_for_anew() -> None:
    async with World(metadata_max_age_ms=5) as world:
        await world.metadata.refreshed()
        await until(lambda: world.metadata.version >= 3)


async def test_an_age_of_nothing_keeps_the_pause_all_the_same() -> None:
    async with World(metadata_max_age_ms=0, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as world:
        await world.metadata.refreshed()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(world.cluster.asked) == 1


async def test_all_topics_or_only_some() -> None:
    async with World() as world:
        world.cluster.topics |= {"a": 0, "b": 0}
        world.metadata.want_all(True)
        assert sorted((await world.metadata.refreshed()).topics) == ["a", "b"]
        world.metadata.want_all(False)
        world.metadata.want_only(["b"])
        assert sorted((await world.metadata.refreshed()).topics) == ["b"]


async def test_closing_tells_those_who_wait() -> None:
    async with World() as world:
        waiting = asyncio.ensure_future(world.metadata.refreshed())
        await asyncio.sleep(0)
        world.metadata.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await world.metadata.refreshed()


async def test_closing_tells_those_who_wait_for_the_refresh_after_the_one_under_way() -> None:
    async with World() as world:
        await world.nodes.any()
        first = asyncio.ensure_future(world.metadata.refreshed())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.ensure_future(world.metadata.refreshed())
        await asyncio.sleep(0)
        world.metadata.close()
        for each in (first, second):
            with pytest.raises(ClosedError):
                await asyncio.wait_for(each, 50)


async def test_who_waits_behind_a_request_gets_the_next_answer_and_causes_no_third() -> None:
    async with World() as world:
        await world.nodes.any()
        first = asyncio.ensure_future(world.metadata.refreshed())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await world.metadata.refreshed()
        await first
        await world.nodes.connection(1)
        assert len(world.cluster.asked) == 2
        assert world.metadata.version == 2


async def test_errors_ask_again_and_again_and_one_request_goes_out() -> None:
    async with World(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as world:
        world.cluster.topics |= {"t": 0, "u": 0}
        await world.metadata.topic("t", 5.0)
        for _ in range(50):
            world.metadata.request_update()
            await asyncio.sleep(0.001)
        assert len(world.cluster.asked) == 1
        assert await world.metadata.topic("u", 5.0), "what is waited for is not held back"
        world.metadata.want("v")
        world.metadata.request_update()
        await until(lambda: len(world.cluster.asked) == 3)


async def test_however_many_ask_one_timer_looks_for_the_leader_that_is_to_come() -> None:
    async with World(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as world:
        world.cluster.topics["t"] = LeaderNotAvailableError.code
        world.metadata.want("t")
        await world.metadata.refreshed()
        timers = getattr(asyncio.get_running_loop(), "_scheduled")  # noqa: B009
        before = sum(not each.cancelled() for each in timers)
        for _ in range(10):
            await world.metadata.refreshed()
        assert sum(not each.cancelled() for each in timers) <= before + 1


async def test_a_partition_without_leader_is_looked_at_again_without_being_asked_for() -> None:
    async with World() as world:
        world.cluster.topics["t"] = 0
        world.cluster.partition = MetadataResponsePartition(
            error_code=LeaderNotAvailableError.code, partition_index=0, leader_id=-1
        )
        await world.metadata.topic("t", 5.0)
        world.cluster.partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=3)
        await until(lambda: world.metadata.view.topics["t"].leader_of(0) == 1)


async def test_a_topic_that_does_not_come_is_asked_for_less_and_less_often() -> None:
    async with World(retry_backoff_ms=1, retry_backoff_max_ms=1_000) as world:
        with pytest.raises(UnknownTopicOrPartitionError):
            await world.metadata.topic("t", 0.3)
        assert len(world.cluster.asked) <= 12


async def test_credentials_that_are_refused_are_told_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(_: Address) -> PipelinedConnection:
        raise AuthenticationFailed("the broker at host:1 does not know this user")

    settings = Settings.of(PRODUCER, None, {"bootstrap_servers": "host:1"})
    nodes = Nodes(settings, open_connection=refuse)
    metadata = Metadata(nodes, settings)
    with pytest.raises(AuthenticationFailed):
        await metadata.topic("t", 5.0)
    (line,) = caplog.messages
    assert line == "producer: failing: the broker at host:1 does not know this user"
    metadata.close()


async def test_a_partition_without_leader_is_told_of_when_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as world:
        clock = ManualClock()
        world.metadata.problems = ProblemLog("producer", clock.monotonic)
        world.cluster.topics["t"] = 0
        world.cluster.partition = MetadataResponsePartition(partition_index=0, leader_id=-1, leader_epoch=0)
        world.metadata.want("t")
        for _ in range(6):
            await world.metadata.refreshed()
            clock.advance(0.5)
        (line,) = caplog.messages
        assert line.startswith("producer: failing for 2 s, trying again: topic t: partition 0: it has no leader now")


async def test_what_is_asked_once_leaves_the_topics_of_the_view_alone() -> None:
    async with World() as world:
        world.cluster.topics = {"t": 0, "u": 0}
        await world.metadata.topic("t", 5.0)
        seen: list[int] = []
        world.metadata.listeners.append(lambda view: seen.append(view.controller_id))
        asked = await world.metadata.ask(None)
        assert set(asked.topics) == {"t", "u"}
        assert set(world.metadata.view.topics) == {"t"}
        assert seen == [1]
        assert world.cluster.asked[-1] is None


async def test_asking_once_learns_the_brokers_and_starts_no_refresh() -> None:
    async with World() as world:
        assert (await world.metadata.ask([])).cluster_id == "c"
        assert list(world.metadata.view.brokers) == [1]
        assert world.nodes.is_known(1)
        assert world.metadata._timer is None
        world.cluster.hang_ups = 1
        with pytest.raises(NoConnection):
            await world.metadata.ask([])
