"""A producer's engine in simulated time, and brokers that keep logs and sequences as Kafka's do, faults included."""

from __future__ import annotations

import asyncio
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from braidlog.client.cluster_view import BrokerView, ClusterView, PartitionView, TopicView
from braidlog.client.errors import AuthenticationFailed, ClientError, NoConnection
from braidlog.client.problem_log import ProblemLog
from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder
from braidlog.client.producer.accumulator.producer_id_state import ProducerIdState
from braidlog.client.producer.accumulator.record_accumulator import AccumulatorLimits, RecordAccumulator
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.guarantees import Guarantees
from braidlog.client.producer.produce_response_handler import IncompleteBatches, ProduceResponseHandler
from braidlog.client.producer.send_path import SendPath
from braidlog.client.producer.sender import Sender
from braidlog.net.outbound.pipelined_connection import OnAnswer
from braidlog.testing.simulated.loop import SimulatedClock, SimulatedLoop
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from braidlog.wire.reader import Reader
from braidlog.wire.records.batch import read_header, sequence_after
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.writer import Writer

TOPIC = "orders"
VERSION = 11

# What a broker does with a request beside answering it.
LOST_BEFORE = "lost before it was written"
LOST_AFTER = "lost after it was written"


class Log:
    """One partition: its records, and what producers wrote last."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        # Producer id -> epoch, last sequence, and the last batches: base sequence -> (count, offset).
        self.producers: dict[int, tuple[int, int, dict[int, tuple[int, int]]]] = {}
        self.largest = 1 << 30

    def append(self, data: bytes) -> tuple[int, int]:
        """Error code and base offset."""
        header = read_header(data, 0, len(data))
        if len(data) > self.largest:
            return 10, -1
        if header.producer_id >= 0:
            refused = self._check(header)
            if refused is not None:
                return refused
        base = len(self.records)
        self.records += read_records(data)
        if header.producer_id >= 0:
            epoch, _, batches = self.producers.get(header.producer_id, (header.producer_epoch, -1, {}))
            if epoch != header.producer_epoch:
                batches = {}
            batches = dict(list({**batches, header.base_sequence: (header.count, base)}.items())[-5:])
            self.producers[header.producer_id] = (header.producer_epoch, header.last_sequence, batches)
        return 0, base

    def _check(self, header: Any) -> tuple[int, int] | None:
        known = self.producers.get(header.producer_id)
        if known is None:
            return None
        epoch, last, batches = known
        if header.producer_epoch < epoch:
            return 47, -1
        if header.producer_epoch > epoch:
            return None if header.base_sequence == 0 else (45, -1)
        seen = batches.get(header.base_sequence)
        if seen is not None and seen[0] == header.count:
            return 0, seen[1]
        if header.base_sequence != sequence_after(last, 1):
            return (46 if header.base_sequence <= last else 45), -1
        return None

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


class FakeConnection:
    """Answers in order, each after a while; breaks as a whole."""

    def __init__(self, world: ProducerSimulation, node: int) -> None:
        self.world = world
        self.node = node
        self.is_open = True
        self.unsent = 0
        self._waiting: deque[OnAnswer] = deque()
        self._free_at = 0.0

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        return VERSION if at_most is None else min(VERSION, at_most)

    def post_with(
        self,
        api_key: int,
        version: int,
        request: Any,
        timeout_s: float,
        on_answer: OnAnswer,
        take_directly: object,
        *,
        directly: bool,
    ) -> None:
        assert not directly
        if not self.is_open:
            raise NoConnection("closed")
        self._waiting.append(on_answer)
        self.world.most_in_flight = max(self.world.most_in_flight, len(self._waiting))
        w = Writer()
        request.encode(w, version)
        self._free_at = max(self._free_at, self.world.loop.time() + self.world.latency())
        self.world.loop.call_at(self._free_at, self._serve, on_answer, w.getvalue(), version)

    def post_only(self, api_key: int, version: int, request: Any) -> None:
        w = Writer()
        request.encode(w, version)
        self.world.serve(self.node, ProduceRequest.decode(Reader(w.getvalue()), version))

    def _serve(self, on_answer: OnAnswer, data: bytes, version: int) -> None:
        if not self.is_open:
            return
        fault = self.world.next_fault()
        if fault == LOST_BEFORE:
            self.cut()
            return
        response = self.world.serve(self.node, ProduceRequest.decode(Reader(data), version))
        if fault == LOST_AFTER:
            self.cut()
            return
        w = Writer()
        response.encode(w, version)
        assert self._waiting.popleft() is on_answer
        on_answer(ProduceResponse.decode(Reader(w.getvalue()), version), None)

    def cut(self, problem: ClientError | None = None) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, deque()
        for on_answer in waiting:
            on_answer(None, problem or NoConnection("the connection broke"))

    async def call(self, api_key: int, request: Any, answer: Any, *, at_most: Any = None, timeout_s: float) -> Any:
        await asyncio.sleep(self.world.latency())
        assert isinstance(request, InitProducerIdRequest)
        self.world.ids_given += 1
        return InitProducerIdResponse(producer_id=7_000 + self.world.ids_given, producer_epoch=self.world.first_epoch)


class FakeNodes:
    def __init__(self, world: ProducerSimulation) -> None:
        self._world = world
        self.problems = world.problems
        self.request_timeout_s = 30.0
        self.open: dict[int, FakeConnection] = {}

    def ready(self, node: int) -> FakeConnection | None:
        found = self.open.get(node)
        return found if found is not None and found.is_open else None

    async def connection(self, node: int) -> FakeConnection:
        await asyncio.sleep(0.05)
        if node in self._world.unreachable:
            raise NoConnection(f"broker {node} is away")
        if node in self._world.unwelcome:
            raise AuthenticationFailed(f"broker {node} does not know us")
        self.open[node] = FakeConnection(self._world, node)
        return self.open[node]

    async def any(self) -> FakeConnection:
        for node in self._world.view.brokers:
            if node not in self._world.unreachable:
                return self.ready(node) or await self.connection(node)
        raise NoConnection("no broker is there")


class FakeMetadata:
    def __init__(self, world: ProducerSimulation) -> None:
        self._world = world
        self.problems = world.problems
        self.listeners: list[Callable[[ClusterView], None]] = []
        self.view = ClusterView("", -1, {}, {})
        self.refreshes = 0
        self._coming = False

    def want(self, *topics: str) -> bool:
        return True

    def request_update(self) -> None:
        if not self._coming:
            self._coming = True
            self._world.loop.call_later(0.1, self._refresh)

    def _refresh(self) -> None:
        self._coming = False
        self.refreshes += 1
        self.view = self._world.view
        for listener in self.listeners:
            listener(self.view)

    def take_leader(self, topic: str, partition: int, leader: int, epoch: int) -> None:
        self._refresh()

    async def refreshed(self) -> ClusterView:
        await asyncio.sleep(0.1)
        self._refresh()
        return self.view

    async def topic(self, name: str, timeout_s: float) -> TopicView:
        async with asyncio.timeout(timeout_s):
            while True:
                await self.refreshed()
                found = self.view.topic(name)
                if found is not None:
                    return found


class FakeEngine:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        # Never asleep: there is one thread only.
        self.busy = allocate_lock()
        self.busy.acquire()
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class FirstPartition:
    """Sticks to partition 0, then 1, and so on."""

    def __init__(self) -> None:
        self.at = 0

    def current(self, topic: str, view: Any) -> int:
        return self.at % len(view.partitions)

    def switch(self, topic: str, view: Any, queued: list[int]) -> int:
        self.at += 1
        return self.at % len(view.partitions)


class ProducerSimulation:
    """`send` as a program would; `run` lets time pass."""

    def __init__(
        self,
        seed: int = 0,
        *,
        partitions: int = 2,
        leaders: tuple[int, ...] = (1, 1),
        acks: int = -1,
        idempotent: bool = True,
        max_in_flight: int = 5,
        retries: int = 1 << 30,
        codec: int = 0,
        **limits: Any,
    ) -> None:
        self.random = Random(seed)
        self.loop: SimulatedLoop = _any(SimulatedLoop)(self.random)
        self.logs = {(TOPIC, partition): Log() for partition in range(partitions)}
        self.leaders = list(leaders)
        self.unreachable: set[int] = set()
        # Brokers that refuse our credentials.
        self.unwelcome: set[int] = set()
        self.faults: deque[str | None] = deque()
        # Error codes that a broker answers the next batches of a partition with, without writing them (or with).
        self.refusals: dict[int, deque[int]] = {}
        self.record_errors: dict[int, list[tuple[int, str]]] = {}
        self.random_faults = 0.0
        self.slowest = 0.01
        self.requests: list[list[tuple[int, int, int]]] = []
        self.most_in_flight = 0
        self.ids_given = 0
        self.first_epoch = 0
        self.known = True
        self.clock = SimulatedClock(self.loop)
        self.limits = AccumulatorLimits(**{"max_in_flight": max_in_flight, **limits})
        self.producer_id_state = ProducerIdState(idempotent, False)
        self.accumulator = RecordAccumulator(
            self.limits, self.producer_id_state, self.clock, FirstPartition(), self._wake
        )
        self.problems = ProblemLog("producer", self.clock.monotonic)
        self.nodes = FakeNodes(self)
        self.metadata = FakeMetadata(self)
        engine = FakeEngine(self.loop)
        self.response_handler = ProduceResponseHandler(
            self.accumulator,
            _any(self.metadata),
            retries=retries,
            backoff_s=0.1,
            longest_backoff_s=1.0,
            random=self.random,
        )
        self.incomplete_batches = IncompleteBatches(self.accumulator, self.response_handler)
        self.sender = Sender(
            self.accumulator,
            BatchEncoder(codec, None),
            Guarantees(acks, idempotent, max_in_flight, retries, None),
            _any(engine),
            _any(self.nodes),
            _any(self.metadata),
            self.response_handler,
            self.incomplete_batches,
            request_timeout_s=30.0,
            backoff_s=0.1,
        )
        self.send_path = SendPath(self.accumulator, self, None)

    # For the send path

    def in_event_loop(self) -> bool:
        return True

    def await_topic(self, topic: str, partition: int, timeout_s: float) -> None:
        raise AssertionError("nothing waits here")

    def _wake(self) -> None:
        self.sender.wake()

    # For tests

    def learn(self) -> None:
        """The producer knows the topic from the start."""
        self.metadata.view = self.view
        self.sender._on_view(self.view, TOPIC)

    def send(self, value: bytes, partition: int = 0, **options: Any) -> Delivery:
        return self.send_path.send(TOPIC, value, partition=partition, **options)

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @property
    def view(self) -> ClusterView:
        partitions = tuple(PartitionView(at, leader, 1, (1, 2), (1, 2), ()) for at, leader in enumerate(self.leaders))
        brokers = {node: BrokerView(node, "host", node) for node in (1, 2)}
        topics = {TOPIC: TopicView(TOPIC, bytes(16), 0, False, partitions)} if self.known else {}
        return ClusterView("", 1, brokers, topics)

    # The brokers

    def latency(self) -> float:
        return self.random.uniform(0.0005, self.slowest)

    def next_fault(self) -> str | None:
        if self.faults:
            return self.faults.popleft()
        if self.random.random() < self.random_faults:
            return self.random.choice((LOST_BEFORE, LOST_AFTER))
        return None

    def serve(self, node: int, request: ProduceRequest) -> ProduceResponse:
        answers = []
        seen = []
        for topic in request.topic_data:
            for each in topic.partition_data:
                data = bytes(each.records) if isinstance(each.records, bytes) else each.records.tobytes()  # type: ignore[union-attr]
                header = read_header(data, 0, len(data))
                seen.append((each.index, header.base_sequence, header.count))
                answers.append(self._append(node, topic.name, each.index, data))
        self.requests.append(seen)
        return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=answers)])

    def _append(self, node: int, topic: str, partition: int, data: bytes) -> PartitionProduceResponse:
        if self.leaders[partition] != node:
            leader = LeaderIdAndEpoch(leader_id=self.leaders[partition], leader_epoch=2)
            return PartitionProduceResponse(index=partition, error_code=6, base_offset=-1, current_leader=leader)
        refusals = self.refusals.get(partition)
        if refusals:
            errors = [
                BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
                for at, message in self.record_errors.get(partition, [])
            ]
            return PartitionProduceResponse(
                index=partition, error_code=refusals.popleft(), base_offset=-1, record_errors=errors
            )
        code, base = self.logs[(topic, partition)].append(data)
        if code == 0 and self.random.random() < self.random_faults / 2:
            # Written, and refused all the same: NOT_ENOUGH_REPLICAS_AFTER_APPEND.
            code, base = 20, -1
        return PartitionProduceResponse(index=partition, error_code=code, base_offset=base, log_start_offset=0)


def _any(fake: Any) -> Any:
    return fake
