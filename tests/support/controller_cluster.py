"""Several brokers with their controllers on one embedded store, in virtual time, over channels that delay and fail.

The brokers only keep what control requests tell them. Invariants are checked as requests and writes happen: one leader
an epoch, epochs in the store that never fall, brokers that hear of live brokers before they get a role.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from braidlog.cluster import loading, paths, records, registration
from braidlog.cluster.control_requests import (
    ANY_BROKER_EPOCH,
    LEADER_DURING_DELETE,
    ControlRequest,
    ControlResponse,
    LeaderAndIsr,
    UpdateMetadata,
)
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.image import BrokerInfo, ClusterImage, PartitionInfo
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import (
    MAX_REQUEST_BYTES,
    Check,
    Create,
    Delete,
    Operation,
    Outcome,
    SessionExpiredError,
    SetData,
)
from braidlog.config.broker import BrokerSettings
from braidlog.controller.controller import Controller
from braidlog.controller.requests import NewTopic, PartitionChange
from braidlog.core.protocol_errors import KafkaStorageError, StaleBrokerEpochError, StaleControllerEpochError
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.net.outbound.errors import ConnectionRefused, NoConnection, RequestTimeout
from braidlog.testing.simulated.loop import SimulatedClock, SimulatedExecutor, SimulatedLoop
from support.controller_harness import RECORD
from support.memory_journal import MemoryJournalFiles

# Longer than any retry, election or lost answer takes.
QUIET_S = 60.0
T0 = TopicPartition("t", 0)


class CheckedSession(EmbeddedSession):
    """A session that checks what is written, and may end with its process at any write."""

    def __init__(self, inner: EmbeddedSession, cluster: Cluster, node: Node) -> None:
        self._inner = inner
        self._cluster = cluster
        self._node = node

    def __getattribute__(self, name: str) -> Any:
        if name in ("multi", "create", "set", "delete", "_inner", "_cluster", "_node", "_write", "max_request_bytes"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_inner"), name)

    @property
    def max_request_bytes(self) -> int:
        return self._cluster.store_limit

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        return await self._write(operations)

    async def _write(self, operations: Sequence[Operation]) -> list[Outcome]:
        node = self._node
        if node.writes_left is not None:
            node.writes_left -= 1
            if node.writes_left < 0:
                # The process ends before this write, or right after it.
                if node.dies_after_write:
                    await self._inner.multi(operations)
                    self._cluster.check_written(operations)
                node.kill()
                raise SessionExpiredError("the process has ended")
        outcomes = await self._inner.multi(operations)
        self._cluster.check_written(operations)
        return outcomes


class FakeBroker:
    def __init__(self, cluster: Cluster, broker_id: BrokerId) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.epoch = -1
        self.controller_epoch = 0
        self.logs: dict[TopicPartition, bytes] = {}
        self.failed_logs: set[TopicPartition] = set()
        self.restarted(-1)

    def restarted(self, epoch: int) -> None:
        """What a broker has in memory is gone with its process."""
        self.epoch = epoch
        self.controller_epoch = 0
        self.roles: dict[TopicPartition, PartitionInfo] = {}
        self.metadata: dict[TopicPartition, PartitionInfo] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.brokers: dict[BrokerId, BrokerInfo] = {}

    def forget(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for where in [where for where in self.metadata if where.topic == topic]:
                del self.metadata[where]

    def apply(self, request: ControlRequest) -> ControlResponse:
        if request.controller_epoch < self.controller_epoch:
            return ControlResponse(StaleControllerEpochError.code)
        if request.broker_epoch != ANY_BROKER_EPOCH and request.broker_epoch < self.epoch:
            return ControlResponse(StaleBrokerEpochError.code)
        self.controller_epoch = request.controller_epoch
        if isinstance(request, LeaderAndIsr):
            assert self.brokers, "a role before any UpdateMetadata"
            return ControlResponse(
                0, {TopicPartition(each.topic, each.partition): self._role(each) for each in request.partitions}
            )
        if isinstance(request, UpdateMetadata):
            self.brokers = dict(request.brokers)
            for each in request.partitions:
                where = TopicPartition(each.topic, each.partition)
                if self.topic_ids.get(each.topic) != each.topic_id:
                    # A topic with another id is another topic.
                    self.forget([each.topic])
                    self.topic_ids[each.topic] = each.topic_id
                role = self.roles.get(where)
                if (
                    role is not None
                    and self.id not in each.info.replicas
                    and role.leader_epoch < each.info.leader_epoch
                ):
                    # It was moved away while this broker was not registered: nobody tells it to stop.
                    del self.roles[where]
                if each.info.leader == LEADER_DURING_DELETE:
                    self.metadata.pop(where, None)
                else:
                    self.metadata[where] = each.info
            return ControlResponse(0)
        answers = {}
        for stop in request.partitions:
            where = TopicPartition(stop.topic, stop.partition)
            answers[where] = KafkaStorageError.code if where in self.failed_logs and stop.delete else 0
            if stop.delete and not answers[where]:
                self.roles.pop(where, None)
                self.logs.pop(where, None)
        return ControlResponse(0, answers)

    def _role(self, each: Any) -> int:
        where = TopicPartition(each.topic, each.partition)
        self.cluster.check_leader(each.topic_id, where, each.info)
        if where in self.failed_logs:
            return KafkaStorageError.code
        known = self.roles.get(where)
        if known is not None and each.info.leader_epoch <= known.leader_epoch and self.logs.get(where) == each.topic_id:
            return 0
        assert self.id in each.info.replicas
        self.roles[where] = each.info
        self.logs[where] = each.topic_id
        return 0


class FakeChannel:
    def __init__(self, cluster: Cluster, sender: Node, broker: BrokerInfo) -> None:
        self._cluster = cluster
        self._sender = sender
        self._broker = broker
        self._in_flight = False

    async def send(self, request: ControlRequest) -> ControlResponse:
        assert not self._in_flight, "two requests at a time"
        self._in_flight = True
        try:
            cluster, node = self._cluster, self._cluster.nodes[self._broker.id]
            await asyncio.sleep(cluster.rng.random() * cluster.delay_s)
            self._check_reached(node)
            cluster.sent.append((self._sender.id, node.id, request))
            response = node.broker.apply(request)
            await asyncio.sleep(cluster.rng.random() * cluster.delay_s)
            if cluster.rng.random() < cluster.lost_answers:
                raise RequestTimeout("the answer was lost")
            return response
        finally:
            self._in_flight = False

    def _check_reached(self, node: Node) -> None:
        if node.cut_off or not self._sender.alive or self._sender.cut_off:
            raise NoConnection(f"nothing is heard of broker {node.id}")
        if not node.alive:
            raise ConnectionRefused(f"broker {node.id} is not there")

    async def reach(self) -> None:
        await asyncio.sleep(self._cluster.rng.random() * self._cluster.delay_s)
        self._check_reached(self._cluster.nodes[self._broker.id])

    def when_broken(self, callback: Callable[[], None]) -> None:
        self._cluster.nodes[self._broker.id].when_killed.append(callback)

    async def close(self) -> None:
        return None


class Node:
    """A broker that can start, die at any moment and come back."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.id = BrokerId(number)
        self.broker = FakeBroker(cluster, self.id)
        self.alive = False
        self.starting = False
        # Neither sends nor receives, but its session lives.
        self.cut_off = False
        # Those that have a connection to it.
        self.when_killed: list[Callable[[], None]] = []
        self.writes_left: int | None = None
        self.dies_after_write = False
        self.session: EmbeddedSession
        self.controller: Controller

    async def start(self) -> None:
        self.starting = True
        try:
            await self._start()
        finally:
            self.starting = False

    async def _start(self) -> None:
        # Its last session ends first, as on a restart within the session's timeout.
        while self.cluster.tasks:
            await self.cluster.tasks.pop()
        self.session = self.cluster.store.connect()
        store = CheckedSession(self.session, self.cluster, self)
        await registration.prepare_store(self.session)
        await registration.cluster_id(self.session)
        self.alive = True
        self.writes_left = None
        epoch = await registration.register(self.session, self.id, RECORD)
        self.broker.restarted(epoch)
        self.controller = Controller(
            store, self.id, lambda: self.cluster.settings, self.cluster.clock, self.cluster.rng, self.cluster.new_id
        )
        await self.controller.start(self._connect, bump_restarted=True)

    def _connect(self, broker: BrokerInfo) -> FakeChannel:
        return FakeChannel(self.cluster, self, broker)

    def kill(self) -> None:
        """Its session ends a little later, as the store has to notice."""
        if self.alive:
            self.die()
            self.cluster.tasks.append(asyncio.ensure_future(self.cluster.store.expire(self.session)))

    def die(self) -> None:
        """Its session goes on for as long as the store likes."""
        self.alive = False
        self.controller.session_lost()
        for callback in self.when_killed:
            callback()
        self.when_killed.clear()

    async def expire(self) -> None:
        """Only the session is lost: the process goes on with the next one."""
        self.starting = True
        try:
            await self._expire()
        finally:
            self.starting = False

    async def _expire(self) -> None:
        self.controller.session_lost()
        await self.cluster.store.expire(self.session)
        if not self.alive:
            return
        self.session = self.cluster.store.connect()
        epoch = await registration.register(self.session, self.id, RECORD)
        # What was deleted while it was not registered, no controller tells it.
        known = await self.session.children(paths.TOPICS)
        self.broker.forget([topic for topic in self.broker.topic_ids if topic not in known])
        self.broker.epoch = epoch
        await self.controller.session_opened(CheckedSession(self.session, self.cluster, self))


class Cluster:
    def __init__(self, seed: int = 1, settings: dict[str, str] | None = None) -> None:
        self.rng = random.Random(seed)
        self.loop = SimulatedLoop(self.rng)  # type: ignore[abstract]
        self.clock = SimulatedClock(self.loop)
        self.settings = BrokerSettings({"auto.leader.rebalance.enable": "false", **(settings or {})})
        self.store = EmbeddedStore.open(MemoryJournalFiles(), self.clock, SimulatedExecutor())
        self.nodes: dict[BrokerId, Node] = {}
        self.sent: list[tuple[BrokerId, BrokerId, ControlRequest]] = []
        self.delay_s = 0.01
        self.lost_answers = 0.0
        self.store_limit = MAX_REQUEST_BYTES
        self.tasks: list[asyncio.Future[None]] = []
        self._leaders: dict[tuple[bytes, int, int], BrokerId] = {}
        self._epochs: dict[str, int] = {}
        self._controller_epoch = 0

    def new_id(self) -> bytes:
        return self.rng.randbytes(16)

    @property
    def controller(self) -> Controller:
        (active,) = [node.controller for node in self.nodes.values() if node.alive and node.controller.active]
        return active

    @property
    def controller_node(self) -> Node:
        (active,) = [node for node in self.nodes.values() if node.alive and node.controller.active]
        return active

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            node = self.nodes.setdefault(BrokerId(number), Node(self, number))
            await node.start()

    def node(self, number: int) -> Node:
        return self.nodes[BrokerId(number)]

    async def quiet(self) -> None:
        """Virtual time passes until everything has settled."""
        await asyncio.sleep(QUIET_S)

    async def image(self) -> ClusterImage:
        return (await loading.load(self.store.connect())).image

    def check_leader(self, topic_id: bytes, where: TopicPartition, info: PartitionInfo) -> None:
        key = (topic_id, where.partition, info.leader_epoch)
        assert self._leaders.setdefault(key, info.leader) == info.leader, f"two leaders of {where} in one epoch"

    def check_written(self, operations: Sequence[Operation]) -> None:
        if any(operation.path.endswith("/state") for operation in operations):
            first = operations[0]
            assert isinstance(first, Check), "a state was written without the fence of the controller epoch"
            assert first.path == paths.CONTROLLER_EPOCH
        for operation in operations:
            path = operation.path
            if path == paths.CONTROLLER_EPOCH and isinstance(operation, SetData):
                epoch = records.decode_controller_epoch(path, operation.data)
                assert epoch > self._controller_epoch
                self._controller_epoch = epoch
            elif path.endswith("/state"):
                if isinstance(operation, Delete):
                    self._epochs.pop(path, None)
                elif isinstance(operation, Create | SetData):
                    epoch = records.decode_partition_state(path, operation.data).leader_epoch
                    assert epoch >= self._epochs.get(path, -1), f"the leader epoch in {path} fell"
                    self._epochs[path] = epoch

    async def check_converged(self) -> None:
        """Everything is announced everywhere as the store has it, and no deletion that could end is left."""
        loaded = await loading.load(self.store.connect())
        alive = [node for node in self.nodes.values() if node.alive]
        expected: dict[TopicPartition, PartitionInfo] = {}
        for topic in loaded.image.topics.values():
            for index, info in enumerate(topic.partitions):
                if info.partition_epoch >= 0:
                    expected[TopicPartition(topic.name, index)] = info
        up = {node.id for node in alive}
        assert set(loaded.image.brokers) == up
        for where, info in expected.items():
            assert info.leader in up or not up.intersection(info.isr), f"{where} could have a leader: {info}"
        for node in alive:
            broker = node.broker
            assert set(broker.brokers) == up, f"broker {node.id} believes in {sorted(broker.brokers)}"
            told = {where: info._replace(offline=()) for where, info in broker.metadata.items()}
            wrong = {
                str(where): (told.get(where), expected.get(where))
                for where in sorted({*told, *expected})
                if told.get(where) != expected.get(where)
            }
            assert not wrong, f"broker {node.id} was told (and the store has): {wrong}"
            for where, info in expected.items():
                if node.id in info.replicas:
                    role = broker.roles[where]
                    assert (role.leader, role.leader_epoch) == (info.leader, info.leader_epoch)
            gone = [where for where in broker.roles if where not in expected]
            assert not gone, f"broker {node.id} has roles in {gone}, which are no more"
        for topic in loaded.deleting:
            assert any(replica not in up for info in topic.partitions for replica in info.replicas), topic

    async def close(self) -> None:
        for node in self.nodes.values():
            if node.alive:
                await node.controller.stop()
        await self.store.close()


def in_cluster(
    *numbers: int, settings: dict[str, str] | None = None
) -> Callable[[Callable[[Cluster], Awaitable[None]]], Callable[[], None]]:
    """A test over these brokers, started one after the other: the first one is the controller."""

    def decorate(body: Callable[[Cluster], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            async def go(cluster: Cluster) -> None:
                await cluster.start(*numbers)
                await cluster.quiet()
                await body(cluster)

            run(Cluster(settings=settings), go)

        return test

    return decorate


def run(cluster: Cluster, body: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await body(cluster)
        await cluster.close()

    cluster.loop.run_until_complete(whole())
    assert not cluster.loop.problems, cluster.loop.problems


def requests_to(cluster: Cluster, broker: int, since: int = 0) -> list[ControlRequest]:
    return [request for _, receiver, request in cluster.sent[since:] if receiver == broker]


async def create(cluster: Cluster, name: str, *replicas: tuple[int, ...]) -> None:
    wanted = NewTopic(name, assignments=dict(enumerate(replicas)))
    (result,) = await cluster.controller.create_topics([wanted])
    assert result.error is None


def state(cluster: Cluster, where: TopicPartition = T0) -> tuple[int, int, tuple[int, ...]]:
    info = cluster.controller._require().context.image.partition(where)
    assert info is not None
    return info.leader, info.leader_epoch, info.isr


def isr_change(cluster: Cluster, isr: tuple[int, ...], **more: int) -> PartitionChange:
    info = cluster.controller._require().context.image.partition(T0)
    assert info is not None
    return PartitionChange(
        T0,
        LeaderEpoch(more.get("leader_epoch", info.leader_epoch)),
        tuple((BrokerId(each), more.get("epoch", -1)) for each in isr),
        more.get("partition_epoch", info.partition_epoch),
        more.get("recovery_state", 0),
    )
