"""Consumers' group sides and a coordinator's shard in one process, on virtual time, from one seed.

The code under test is all real: memberships of both protocols, commits, assignors, and the shard that coordinates. Only
the wire between is made here, which delays, cuts and forgets; and so are the programs, which poll when they feel like
it, and metadata, which everybody sees at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, Final, TypeVar, cast

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.membership import Membership, membership_for
from braidlog.client.consumer.offsets.commits import Commits
from braidlog.client.consumer.partition_state import FETCHING
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.subscription_state import SubscriptionState
from braidlog.client.consumer.wakeup import Wakeup
from braidlog.client.errors import NoConnection, RequestTimeout
from braidlog.client.metadata import Metadata
from braidlog.client.network.engine import Engine
from braidlog.client.network.nodes import Nodes
from braidlog.client.problem_log import ProblemLog
from braidlog.client.settings import CONSUMER, Settings
from braidlog.coordinator.effects import Caller
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.loop import SimulatedClock, SimulatedLoop
from braidlog.wire.apis import APIS
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorResponse
from braidlog.wire.generated.heartbeat import HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupResponse
from braidlog.wire.generated.offset_commit import OffsetCommitResponse
from braidlog.wire.generated.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from braidlog.wire.generated.sync_group import SyncGroupResponse
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer
from support.consumer_groups import GROUP, ChangingTopics, ConsumerDriver
from support.membership_harness import BEAT, COMMIT, FETCH, FIND, JOIN, LEAVE, NEWER_BEAT, SYNC, FakeMetadata

T = TypeVar("T")

SESSION_MS: Final = 6_000
MAX_POLL_MS: Final = 8_000
_OPERATIONS: Final = {
    JOIN: "join_group",
    SYNC: "sync_group",
    BEAT: "heartbeat",
    LEAVE: "leave_group",
    NEWER_BEAT: "consumer_heartbeat",
    COMMIT: "commit_offsets",
    FETCH: "fetch_offsets",
}


def over_the_wire(message: Message, kind: type[Message], version: int) -> Message:
    """As the other side sees it: what a version cannot say is lost, and nothing is shared."""
    writer = Writer()
    message.encode(writer, version)
    return kind.decode(Reader(writer.getvalue()), version)


class SimulatedEngine:
    """Everything is one thread here: programs act while the loop rests."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon(callback, *arguments)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        async def bounded() -> T:
            try:
                async with asyncio.timeout(timeout_s):
                    return await work
            except TimeoutError as late:
                raise RequestTimeout("not done in time") from late

        return self.loop.run_until_complete(bounded())

    def check_usable(self) -> None:
        return


class Ticket:
    """Answers over the wire once the coordinator has decided."""

    def __init__(self, deliver: Callable[[Message], None], refuse: Callable[[ProtocolError], Message]) -> None:
        self._deliver = deliver
        self._refuse = refuse

    def answer(self, response: Message) -> None:
        self._deliver(response)

    def fail(self, error: ProtocolError) -> None:
        self._deliver(self._refuse(error))


class World:
    def __init__(self, seed: int, topics: Mapping[str, int]) -> None:
        self.random = Random(seed)
        self.loop = SimulatedLoop(self.random)
        self.clock = SimulatedClock(self.loop)
        self.topics = ChangingTopics(**topics)
        self.driver = ConsumerDriver(
            self.topics,
            GroupSettings(
                initial_rebalance_delay_ms=0,
                min_session_timeout_ms=100,
                consumer_session_timeout_ms=SESSION_MS,
                consumer_heartbeat_interval_ms=1_000,
            ),
        )
        self.members: list[Program] = []
        self.connections: list[Wire] = []
        # The highest offset that was acknowledged to anybody, by partition.
        self.acknowledged: dict[TopicPartition, int] = {}
        # Whom the coordinator gave a partition in a generation.
        self.owners: dict[tuple[TopicPartition, int], str] = {}
        self._began = self.driver.seconds

    def delay(self) -> float:
        """Of one message on its way: now and then long."""
        longest = 1.0 if self.random.randrange(20) == 0 else 0.02
        return self.random.random() * longest

    def run(self, seconds: float) -> None:
        """Let time pass at the coordinator and at the members' engines; no program does anything meanwhile."""
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            self.loop.run_until_complete(asyncio.sleep(min(0.05, until - self.loop.time())))
            self.catch_up()
        assert not self.loop.problems, self.loop.problems

    def catch_up(self) -> None:
        late = self._began + self.loop.time() - self.driver.seconds
        if late > 0:
            self.driver.advance(late)

    def crash_coordinator(self) -> None:
        """Only its log is left; whoever waited for it hears nothing but the end of the connection."""
        self.catch_up()
        for wire in list(self.connections):
            wire.cut()
        self.driver.crash()

    def grow(self, topic: str, count: int) -> None:
        self.topics.grow(topic, count)
        self.driver.topics_changed()
        for member in self.members:
            if member.is_alive:
                member.learn()

    @property
    def view_counts(self) -> dict[str, int]:
        return {name: facts.partitions for name, facts in self.topics.facts.items()}

    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition(name, index) for name, count in self.view_counts.items() for index in range(count)}

    def note_commit(self, request: Any, response: Any) -> None:
        """What is acknowledged never lies before what was acknowledged earlier: nobody's progress is undone."""
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        for topic in request.topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                if codes[place] == 0:
                    before = self.acknowledged.get(place, 0)
                    assert each.committed_offset >= before, (
                        f"{place} was set back from {before} to {each.committed_offset} by {request.member_id} "
                        f"in {request.generation_id_or_member_epoch}"
                    )
                    self.acknowledged[place] = each.committed_offset


class Wire:
    """A connection to the coordinator; requests and answers keep their order, and are lost together."""

    is_open = True

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent_until = 0.0
        self._waiting: list[asyncio.Future[Any]] = []
        self._answers: dict[asyncio.Future[Any], Message] = {}
        # Nothing comes through before this time: the process is stopped, or the network is.
        self.frozen_until = 0.0
        world.connections.append(self)

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        newest = APIS[api_key].stable_max if api_key != NEWER_BEAT else 1
        return newest if at_most is None else min(newest, at_most)

    async def call(
        self, api_key: int, request: Message, answer: type[Any], *, at_most: int | None = None, timeout_s: float
    ) -> Any:
        return await self.post(api_key, self.version_for(api_key, at_most), request, timeout_s)

    def post(self, api_key: int, version: int, request: Message, timeout_s: float) -> asyncio.Future[Any]:
        loop = self._world.loop
        waiting: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(waiting)
        reported = over_the_wire(request, APIS[api_key].request, version)
        self._sent_until = max(self._sent_until, loop.time(), self.frozen_until) + self._world.delay()
        loop.call_at(self._sent_until, self._arrive, api_key, version, reported, waiting)
        loop.call_later(timeout_s, self._expire, waiting)
        return waiting

    def _expire(self, waiting: asyncio.Future[Any]) -> None:
        if not waiting.done() and waiting in self._waiting:
            self.cut(RequestTimeout("no answer in time"))

    def _arrive(self, api_key: int, version: int, request: Any, waiting: asyncio.Future[Any]) -> None:
        if not self.is_open:
            return
        world = self._world
        world.catch_up()

        def deliver(response: Message) -> None:
            if api_key == COMMIT:
                world.note_commit(request, response)
            reported = over_the_wire(response, APIS[api_key].response, version)
            world.loop.call_at(
                max(world.loop.time(), self.frozen_until) + world.delay(), self._answer, waiting, reported
            )

        if api_key == FIND:
            found = Coordinator(key=GROUP, node_id=1, host="host", port=1)
            late = world.random.choice([0.0, 0.0, 0.5, 3.0])
            world.loop.call_later(late, deliver, FindCoordinatorResponse(coordinators=[found]))
            return
        responder = Ticket(deliver, lambda error: _refusal(api_key, request, error))
        operation = getattr(world.driver.shard, _OPERATIONS[api_key])
        try:
            effects = operation(request, Caller(version, "client", "/1.2.3.4"), responder, world.driver.now)
        except ProtocolError as error:
            responder.fail(error)
            return
        world.driver.apply(effects)

    def _answer(self, waiting: asyncio.Future[Any], response: Message) -> None:
        self._answers[waiting] = response
        while self._waiting and self._waiting[0] in self._answers:
            first = self._waiting.pop(0)
            answer = self._answers.pop(first)
            if not first.done():
                first.set_result(answer)

    def cut(self, problem: Exception | None = None) -> None:
        self.is_open = False
        if self in self._world.connections:
            self._world.connections.remove(self)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_exception(problem or NoConnection("cut"))


def _refusal(api_key: int, request: Any, error: ProtocolError) -> Message:
    if api_key == COMMIT:
        from braidlog.wire.generated.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic

        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error.code)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    if api_key == FETCH:
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=GROUP, error_code=error.code)])
    kinds: dict[int, Callable[..., Message]] = {
        JOIN: JoinGroupResponse,
        SYNC: SyncGroupResponse,
        BEAT: HeartbeatResponse,
        LEAVE: LeaveGroupResponse,
        NEWER_BEAT: ConsumerGroupHeartbeatResponse,
    }
    return kinds[api_key](error_code=error.code)


class SimulatedNodes:
    """All connections lead to the one broker there is."""

    def __init__(self, world: World) -> None:
        self.addresses: Mapping[int, tuple[str, int]] = {1: ("host", 1)}
        self.problems = ProblemLog("consumer", world.loop.time)
        self._world = world
        self.wires: dict[str, Wire] = {}

    def learn_one(self, node_id: int, address: tuple[str, int]) -> None:
        self.addresses = {**self.addresses, node_id: address}

    async def any(self) -> Wire:
        return await self.connection(1, "any")

    async def connection(self, node_id: int, purpose: str = "") -> Wire:
        await asyncio.sleep(0.001)
        wire = self.wires.get(purpose)
        if wire is None or not wire.is_open:
            frozen = max((each.frozen_until for each in self.wires.values()), default=0.0)
            wire = self.wires[purpose] = Wire(self._world)
            wire.frozen_until = frozen
        return wire


class Program(RebalanceListener):
    """A program with a consumer: polls, reads a little, lets auto-commit do its work."""

    def __init__(self, world: World, name: str, topics: Iterable[str], settings: Mapping[str, Any]) -> None:
        self.name = name
        self.is_alive = True
        self.rests_until = 0.0
        self.reported: list[tuple[float, str, list[TopicPartition]]] = []
        # What it believes to have.
        self.owned: set[TopicPartition] = set()
        self._world = world
        self._metadata = FakeMetadata({})
        self._nodes = SimulatedNodes(world)
        self.subscription = SubscriptionState()
        given = {
            "bootstrap_servers": "host:1",
            "group_id": GROUP,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 1_000,
            "max_poll_interval_ms": MAX_POLL_MS,
            "request_timeout_ms": 4_000,
            "auto_commit_interval_ms": 700,
            **settings,
        }
        self._engine = SimulatedEngine(world.loop)
        context = ConsumerContext(
            Settings.of(CONSUMER, None, given),
            cast(Engine, self._engine),
            cast(Nodes, self._nodes),
            cast(Metadata, self._metadata),
            self.subscription,
            Wakeup(world.clock),
            world.clock,
        )
        self.membership: Membership = membership_for(context)
        self.commits = Commits(context, self.membership)
        self.subscription.subscribe(topics, self)
        world.members.append(self)
        self.learn()

    def learn(self) -> None:
        self._metadata.become(self._world.view_counts)
        topics = self._world.topics
        # The coordinator's ids, by which the consumer protocol names topics.
        view = self._metadata.view
        self._metadata.view = view._replace(
            topics={name: topic._replace(topic_id=topics.facts[name].topic_id) for name, topic in view.topics.items()}
        )
        for listener in list(self._metadata.listeners):
            listener(self._metadata.view)

    @property
    def generation(self) -> int:
        return self.membership.group_metadata().generation_id

    # What the group tells it

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)
        self.owned.update(partitions)
        for partition in partitions:
            other = self._world.owners.setdefault((partition, self.generation), self.name)
            assert other == self.name, f"{partition} was given to {other} and {self.name} in {self.generation}"
        if partitions:
            self._engine.soon(self._begin, list(partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)
        assert self.owned >= set(partitions)
        self.owned.difference_update(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)
        assert self.owned >= set(partitions)
        self.owned.difference_update(partitions)

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.reported.append((self._world.loop.time(), what, partitions))

    # What it does

    def _begin(self, partitions: list[TopicPartition]) -> None:
        self._task = self._world.loop.create_task(self._find_positions(partitions))

    async def _find_positions(self, partitions: list[TopicPartition]) -> None:
        promised = {each: self._world.acknowledged.get(each, 0) for each in partitions}
        version = {each: self.subscription.find(each) for each in partitions}
        found = await self.commits.fetch_committed(partitions)
        for each, reported in found.items():
            state = self.subscription.find(each)
            offset = reported.offset if reported is not None else 0
            assert offset >= promised[each], f"{each}: {promised[each]} was acknowledged, {offset} is found"
            if state is not None and state is version[each] and not state.has_position():
                state.move(FETCHING)
                state.seek(offset)

    def poll(self) -> None:
        now = self._world.loop.time()
        if not self.is_alive or now < self.rests_until:
            return
        self.membership.advance()
        self.commits.tick(now)
        for state in self.subscription.states():
            if state.is_readable() and self._world.random.random() < 0.5:
                state.position += self._world.random.randint(1, 3)

    def leave(self) -> None:
        self.membership.close(self._world.loop.time() + 5)
        self.commits.close(self._world.loop.time())
        self.owned.clear()
        self._end()

    def die(self) -> None:
        """As a killed process: silence, and connections that end."""
        self._engine.run(cast(Any, self.membership)._requests.stop())
        self.owned.clear()
        self._end()

    def _end(self) -> None:
        self.is_alive = False
        for wire in self._nodes.wires.values():
            wire.cut()

    def stall(self, seconds: float) -> None:
        """As a stopped process: it neither polls nor gets anything through."""
        self.rests_until = self._world.loop.time() + seconds
        for wire in self._nodes.wires.values():
            wire.frozen_until = self.rests_until

    def cut(self) -> None:
        for wire in self._nodes.wires.values():
            wire.cut()
