"""The data path of a broker on real logs, without sockets and without coordinators: produce, fetch, markers."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.coordinators.marker_writer import MarkerWriter
from braidlog.broker.handlers.records.fetch import FetchHandler
from braidlog.broker.handlers.records.fetch_session import FetchSessionCache
from braidlog.broker.handlers.records.list_offsets import ListOffsetsHandler
from braidlog.broker.handlers.records.produce import ProduceHandler
from braidlog.broker.handlers.transactions.describe_transactions import DescribeProducersHandler
from braidlog.broker.handlers.transactions.write_txn_markers import WriteTxnMarkersHandler
from braidlog.broker.requests.dispatch import Dispatch, responding, returning
from braidlog.broker.requests.handler_pool import RequestHandlerPool
from braidlog.broker.requests.time_slicing import TimeSlicer
from braidlog.config.log_settings import LogSettings
from braidlog.coordinator.effects import SendMarkers
from braidlog.core.clock import Clock, ManualClock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.tasks import Tasks
from braidlog.core.timeout_queue import TimeoutQueue, TimeoutQueues
from braidlog.core.types import TopicPartition
from braidlog.net.channel import Channel
from braidlog.net.exchange import Part
from braidlog.net.fair_queue import FairQueue
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.replication.group_commit import Committer
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.apis import decode_response, encode_request
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from braidlog.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from braidlog.wire.message import Message
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record

START_MS = 1_700_000_000_000
TOPIC = "orders"
TOPIC_ID = b"t" * 16

Answers = dict[TopicPartition, ProtocolError | None]


class Steps:
    """A loop that runs what is due when told."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], object]] = deque()
        self.later: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Steps:
        self.later.append(callback)
        return self

    def cancel(self) -> None:
        self.later.clear()

    def run_elsewhere(self, lane: str, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """In a thread, were there any."""

        def run() -> None:
            try:
                work()
            except Exception as problem:
                done(problem)
            else:
                done(None)

        self.call_soon(run)

    def wait(self) -> None:
        """Until what was asked for later is due."""
        due, self.later = self.later, []
        for callback in due:
            callback()
        self.run()

    def step(self) -> None:
        self._soon.popleft()()

    def run(self) -> None:
        while self._soon:
            self._soon.popleft()()


class Peer(Channel):
    """A client's connection: frames in, decoded answers out."""

    def __init__(self, world: DataPath) -> None:
        super().__init__(world.dispatch, world.round, world.memory, "PLAINTEXT", "192.0.2.1")
        self._world = world
        self._held: deque[bytes] = deque()
        self._asked: deque[tuple[int, int]] = deque()
        self._received = b""
        self.answers: deque[Message] = deque()

    def ask(self, api_key: int, version: int, request: Message) -> None:
        self._asked.append((api_key, version))
        self._held.append(encode_request(api_key, version, len(self._asked), "test", request).getvalue()[4:])
        self.resume()

    def call(self, api_key: int, version: int, request: Message) -> Message:
        """Ask, let the loop run, and take the one answer."""
        self.ask(api_key, version, request)
        self._world.steps.run()
        return self.answers.popleft()

    def resume(self) -> None:
        while self._held and not self.muted and not self.closed:
            frame = self._held.popleft()
            self.handler.handle_frame(self, frame, 0, len(frame))

    def send(self, parts: list[Part]) -> None:
        self._received += b"".join(part if isinstance(part, (bytes, memoryview)) else part.read() for part in parts)
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
            api_key, version = self._asked.popleft()
            self.answers.append(decode_response(api_key, version, frame)[1])

    def close(self, reason: str) -> None:
        self.closed = True
        self.handler.channel_closed(self)


class FakeCoordinator:
    """Answers questions about transactions when the test says so, or at once."""

    def __init__(self) -> None:
        self.at_once: ProtocolError | None = None
        self.waits = False
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self._waiting: deque[tuple[list[TopicPartition], Callable[[Answers], None]]] = deque()

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        add: bool,
        done: Callable[[Answers], None],
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, add))
        if self.waits:
            self._waiting.append((partitions, done))
        else:
            done(dict.fromkeys(partitions, self.at_once))

    def answer(self, error: ProtocolError | None = None) -> None:
        partitions, done = self._waiting.popleft()
        done(dict.fromkeys(partitions, error))


class FakeOffsets:
    """The group coordinator's side of a marker."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int, bool, int]] = []
        self.error: ProtocolError | None = None

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        done: Callable[[ProtocolError | None], None],
    ) -> None:
        if self.error is None:
            self.written.append((partition, producer_id, producer_epoch, commits, coordinator_epoch))
        done(self.error)


class DataPath:
    """Topic `orders` with two partitions, and everything that touches their data."""

    def __init__(
        self,
        root: Path,
        settings: LogSettings | None = None,
        slices_clock: Clock | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._root = root
        self.settings = settings if settings is not None else LogSettings()
        self.steps = Steps()
        self.clock = ManualClock(START_MS)
        self.round = Round(self.steps)
        self.registry = PartitionRegistry()
        self.faults: list[StorageFault] = []
        self.committer = Committer(
            self.round, self.clock, lambda partition: "/data", lambda path, work, done: None, self.faults.append
        )
        self.memory = MemoryBudget(1 << 30)
        self.fair_queue = FairQueue(self.steps)
        self.time_slicer = TimeSlicer(self.fair_queue, slices_clock or self.clock)
        self.handler_pool = RequestHandlerPool(self.steps.run_elsewhere, self.memory.conversions)
        self.coordinator = FakeCoordinator()
        self.authorizer = authorizer if authorizer is not None else Authorizer()
        self.offsets = FakeOffsets()
        # Apart from those of fetches.
        self.marker_timers = Steps()
        # Apart from the others, too.
        self.produce_timers = Steps()
        self.produce_handler = ProduceHandler(
            self.registry,
            self.committer,
            self.clock,
            self.fair_queue,
            self.handler_pool,
            TimeoutQueues(self.produce_timers.call_later, self.clock.monotonic),
            self.authorizer,
        )
        self.produce_handler.add_or_verify = self.coordinator.add_or_verify
        self.fetch_handler = FetchHandler(
            self.registry,
            FetchSessionCache(10, random.Random(1)),
            self.round,
            self.clock,
            self.steps.call_later,
            1 << 20,
            self.time_slicer,
            self.handler_pool,
            self.authorizer,
        )
        self.markers = MarkerWriter(
            self.registry,
            self.committer,
            self.clock,
            self.offsets,
            TimeoutQueue(self.marker_timers.call_later, self.clock.monotonic, lambda: 30.0),
        )
        self.dispatch = Dispatch(self.clock, Tasks("test"))
        self.dispatch.time_slicer = self.time_slicer
        self.committer.after_writing = self.fetch_handler.answer_followers
        self.dispatch.commit = self.committer.commit
        self.dispatch.on_channel_closed(self.fetch_handler.channel_closed)
        self.dispatch.add(responding(ApiKey.PRODUCE, lambda: self.produce_handler))
        self.dispatch.add(responding(ApiKey.FETCH, lambda: self.fetch_handler))
        self.dispatch.add(returning(ApiKey.LIST_OFFSETS, lambda: ListOffsetsHandler(self.registry, self.authorizer)))
        self.dispatch.add(
            responding(ApiKey.WRITE_TXN_MARKERS, lambda: WriteTxnMarkersHandler(self.markers, self.authorizer))
        )
        self.dispatch.add(
            returning(ApiKey.DESCRIBE_PRODUCERS, lambda: DescribeProducersHandler(self.registry, self.authorizer))
        )
        self.partitions = [self.add_partition(TOPIC, index, TOPIC_ID) for index in range(2)]

    def add_partition(self, topic: str, index: int, topic_id: bytes) -> Partition:
        partition = Partition(topic, index, topic_id, 1, TopicMetrics())
        files = OsFiles()
        partition.log = UnifiedLog.open(
            str(self._root / f"{topic}-{index}"),
            TopicPartition(topic, index),
            self.settings,
            files=files,
            handles=HandlePool(files),
            clock=self.clock,
        )
        partition.update_leader_and_isr(1, 0, (1,), (1,))
        self.registry.add(partition)
        return partition

    def log(self, index: int = 0) -> UnifiedLog:
        return self.partitions[index].require_log()

    def close(self) -> None:
        for partition in self.registry.partitions():
            if partition.log is not None:
                partition.log.close(flush=False)

    def produce(
        self, batch: bytes, *, version: int = 11, transactional_id: str | None = "t"
    ) -> PartitionProduceResponse:
        """Produce to partition 0 on a connection of its own, and take the answer."""
        response = Peer(self).call(0, version, produce_request({0: batch}, transactional_id))
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def end(
        self,
        producer_id: int,
        epoch: int,
        *,
        commits: bool,
        coordinator_epoch: int = 0,
        partitions: tuple[int, ...] = (0,),
    ) -> dict[int, int]:
        """Write markers; error codes by partition."""
        codes: dict[int, int] = {}

        def done(target: TopicPartition, error: ProtocolError | None) -> None:
            codes[target.partition] = error.code if error is not None else 0

        targets = [TopicPartition(TOPIC, index) for index in partitions]
        self.markers.write(SendMarkers("", producer_id, epoch, commits, targets, coordinator_epoch), done)
        self.steps.run()
        return codes


def produce_request(
    batches: dict[int, bytes], transactional_id: str | None = "t", acks: int = -1, topic: str = TOPIC
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=TOPIC_ID,
                partition_data=[PartitionProduceData(index=index, records=batch) for index, batch in batches.items()],
            )
        ],
    )


def batch(
    *values: bytes,
    producer_id: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = True,
    timestamp: int = START_MS,
) -> bytes:
    return build_batch(
        [Record(timestamp=timestamp, key=value, value=value) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def fetch_request(
    offset: int = 0,
    *,
    committed: bool = True,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    named: bool = True,
) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=1 if committed else 0,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[wanted])] if named else [],
    )


def fetched(response: Message) -> PartitionData:
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]
