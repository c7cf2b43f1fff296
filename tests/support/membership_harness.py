"""A scripted coordinator behind fake connections, and the parts of a consumer that a membership works with.

Requests are encoded for the version they are sent in, so that what a version cannot say fails here as on a wire.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar, cast

from braidlog.client.cluster_view import BrokerView, ClusterView, PartitionView, TopicView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.membership import Membership, membership_for
from braidlog.client.consumer.interceptors import ConsumerInterceptors
from braidlog.client.consumer.offsets.commits import Commits
from braidlog.client.consumer.partition_state import FETCHING
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.subscription_state import SubscriptionState
from braidlog.client.consumer.wakeup import Wakeup
from braidlog.client.metadata import Metadata
from braidlog.client.network.engine import Engine
from braidlog.client.network.nodes import Nodes
from braidlog.client.problem_log import ProblemLog
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.clock import SystemClock
from braidlog.core.types import TopicPartition
from braidlog.wire.apis import APIS, encode_request
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorResponse
from braidlog.wire.generated.heartbeat import HeartbeatResponse
from braidlog.wire.generated.leave_group import LeaveGroupResponse
from braidlog.wire.message import Message

FIND, JOIN, BEAT, LEAVE, SYNC, COMMIT, FETCH, NEWER_BEAT = 10, 11, 12, 13, 14, 8, 9, 68
GROUP = "readers"
DEADLINE_S = 60.0

Answer = Message | Exception | None
Handler = Callable[[Any, int], Answer]
M = TypeVar("M", bound=Message)


class CoordinatorScript:
    """What a coordinator answers, by api: the queued answers first, then always the standing one."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, Any, str]] = []
        self.versions: dict[int, int] = {}
        self._queued: dict[int, deque[Answer | Handler]] = {}
        self._standing: dict[int, Handler] = {
            FIND: self._found,
            BEAT: lambda request, version: HeartbeatResponse(),
            LEAVE: lambda request, version: LeaveGroupResponse(),
        }
        self.parked: list[asyncio.Future[Any]] = []

    @staticmethod
    def _found(request: Any, version: int) -> Answer:
        if version < 4:
            return FindCoordinatorResponse(node_id=1, host="host", port=1)
        return FindCoordinatorResponse(coordinators=[Coordinator(key=GROUP, node_id=1, host="host", port=1)])

    def then(self, api_key: int, *answers: Answer | Handler) -> None:
        """Answer the next requests so; None never answers."""
        self._queued.setdefault(api_key, deque()).extend(answers)

    def always(self, api_key: int, handler: Handler) -> None:
        self._standing[api_key] = handler

    def asked(self, api_key: int, kind: type[M]) -> list[M]:
        return [request for key, _, request, _ in list(self.requests) if key == api_key and isinstance(request, kind)]

    def count(self, api_key: int) -> int:
        return sum(key == api_key for key, _, _, _ in list(self.requests))

    def take(self, api_key: int, version: int, request: Any, purpose: str) -> Answer:
        self.requests.append((api_key, version, request, purpose))
        queued = self._queued.get(api_key)
        answer = queued.popleft() if queued else self._standing[api_key]
        return answer(request, version) if callable(answer) else answer


class FakeConnection:
    is_open = True

    def __init__(self, script: CoordinatorScript, purpose: str) -> None:
        self._script = script
        self._purpose = purpose

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        newest = self._script.versions.get(api_key, APIS[api_key].max_version)
        return newest if at_most is None else min(newest, at_most)

    async def call(
        self, api_key: int, request: Message, answer: type[Any], *, at_most: int | None = None, timeout_s: float
    ) -> Any:
        return await self.post(api_key, self.version_for(api_key, at_most), request, timeout_s)

    def post(self, api_key: int, version: int, request: Message, timeout_s: float) -> asyncio.Future[Any]:
        encode_request(api_key, version, 1, "client", request)
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = self._script.take(api_key, version, request, self._purpose)
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        elif answer is None:
            self._script.parked.append(waiting)
        else:
            waiting.set_result(answer)
        return waiting


class FakeNodes:
    def __init__(self, script: CoordinatorScript) -> None:
        self.addresses: Mapping[int, tuple[str, int]] = {1: ("host", 1)}
        self.problems = ProblemLog("consumer")
        self._script = script

    def learn_one(self, node_id: int, address: tuple[str, int]) -> None:
        self.addresses = {**self.addresses, node_id: address}

    async def any(self) -> FakeConnection:
        return FakeConnection(self._script, "any")

    async def connection(self, node_id: int, purpose: str = "") -> FakeConnection:
        assert node_id in self.addresses
        return FakeConnection(self._script, purpose)


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"-")


class FakeMetadata:
    def __init__(self, counts: Mapping[str, int]) -> None:
        self.version = 1
        self.listeners: list[Callable[[ClusterView], None]] = []
        self.view = self._view(counts)
        self.updates = 0
        self.on_update: Callable[[], None] | None = None

    def _view(self, counts: Mapping[str, int]) -> ClusterView:
        topics = {
            name: TopicView(
                name,
                topic_id(name),
                0,
                False,
                tuple(PartitionView(index, 1, 0, (1,), (1,), ()) for index in range(count)),
            )
            for name, count in counts.items()
        }
        return ClusterView("c", 1, MappingProxyType({1: BrokerView(1, "host", 1)}), MappingProxyType(topics))

    def become(self, counts: Mapping[str, int]) -> None:
        """On the engine's thread."""
        self.view = self._view(counts)
        for listener in list(self.listeners):
            listener(self.view)

    def want(self, *topics: str) -> bool:
        return any(self.view.topic(name) is None for name in topics)

    async def refreshed(self) -> ClusterView:
        self.request_update()
        return self.view

    def request_update(self) -> None:
        self.updates += 1
        if self.on_update is not None:
            self.on_update()


class RecordingRebalanceListener(RebalanceListener):
    """The calls of a listener, in order; `trouble` is raised by the next one."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, list[TopicPartition]]] = []
        self.trouble: Exception | None = None
        self.on_revoked: Callable[[], None] | None = None

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.reported.append((what, partitions))
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        if self.on_revoked is not None:
            self.on_revoked()
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)

    @property
    def words(self) -> list[str]:
        return [what for what, _ in self.reported]


class MembershipHarness:
    """A consumer's group side, with everything else of it faked."""

    def __init__(
        self, counts: Mapping[str, int], *, interceptors: ConsumerInterceptors | None = None, **settings: Any
    ) -> None:
        given = {
            "bootstrap_servers": "host:1",
            "group_id": GROUP,
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 5,
            "heartbeat_interval_ms": 5,
            "session_timeout_ms": 5_000,
            "enable_auto_commit": False,
            **settings,
        }
        self.script = CoordinatorScript()
        self.metadata = FakeMetadata(counts)
        self.subscription = SubscriptionState()
        self.listener = RecordingRebalanceListener()
        clock = SystemClock()
        self.wakeup = Wakeup(clock)
        self.engine = Engine("consumer under test")
        self.context = ConsumerContext(
            Settings.of(CONSUMER, None, given),
            self.engine,
            cast(Nodes, FakeNodes(self.script)),
            cast(Metadata, self.metadata),
            self.subscription,
            self.wakeup,
            clock,
        )
        self.membership: Membership = membership_for(self.context)
        self.commits = Commits(self.context, self.membership, interceptors)

    def subscribe(self, *topics: str) -> None:
        self.subscription.subscribe(topics, self.listener)

    def poll(self) -> None:
        self.membership.advance()
        self.commits.tick(time.monotonic())

    def until(self, happened: Callable[[], object]) -> None:
        """Poll until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not happened():
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s; reported {self.listener.reported}"
            self.poll()
            self.wakeup.wait(0.01)

    def eventually(self, happened: Callable[[], object]) -> None:
        """Wait, without polling, until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not happened():
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s; reported {self.listener.reported}"
            self.wakeup.wait(0.005)

    def settle(self) -> None:
        self.until(lambda: self.membership.is_settled)

    def position(self, partition: TopicPartition, offset: int) -> None:
        """As if records before `offset` had been returned."""
        state = self.subscription.state(partition)
        if state.phase != FETCHING:
            state.phase = FETCHING
        state.seek(offset)

    def on_engine(self, call: Callable[[], None]) -> None:
        async def run() -> None:
            call()

        self.engine.run(run(), DEADLINE_S)

    def deadline(self) -> float:
        return time.monotonic() + DEADLINE_S


@contextmanager
def membership_harness(counts: Mapping[str, int], **settings: Any) -> Iterator[MembershipHarness]:
    made = MembershipHarness(counts, **settings)
    try:
        yield made
    finally:
        made.listener.trouble = None
        made.membership.close(time.monotonic() + 1)
        made.engine.close()


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def names(found: Iterable[TopicPartition]) -> list[str]:
    return sorted(map(str, found))
