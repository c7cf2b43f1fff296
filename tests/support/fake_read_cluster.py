"""A cluster in memory for the consumer's read side: logs by partition, leaders that move, answers that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from braidlog.client.cluster_view import BrokerView, ClusterView, PartitionView, TopicView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer
from braidlog.client.consumer.fetch.fetch_responses import FetchResponseHandler
from braidlog.client.consumer.fetch.fetcher import Fetcher
from braidlog.client.consumer.offsets.auto_offset_reset import AutoOffsetResetStrategy
from braidlog.client.consumer.offsets.list_offsets import OffsetLookup
from braidlog.client.consumer.offsets.positions import FetchCommitted, Positions
from braidlog.client.consumer.subscription_state import SubscriptionState
from braidlog.client.consumer.wakeup import Wakeup
from braidlog.client.problem_log import ProblemLog
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import NONE
from braidlog.core.slices import ByteSlice
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from braidlog.wire.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from braidlog.wire.message import Message
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record

TOPIC = "t"
P0 = TopicPartition(TOPIC, 0)
P1 = TopicPartition(TOPIC, 1)
IDS = [bytes([1]) * 16, bytes([2]) * 16]


class FakeLog:
    """Records of one partition; `epoch_end` is what the leader says of any epoch asked about."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.refusals: list[int] = []
        self.epoch_end: tuple[int, int] | None = None
        self.times: dict[int, int] = {}

    def read(self, offset: int) -> bytes:
        count = min(self.end - offset, 10)
        records = [Record(timestamp=1, value=b"%d" % (offset + at)) for at in range(count)]
        return build_batch(records, base_offset=offset, leader_epoch=3) if records else b""


class FakeConnection:
    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.in_flight = 0
        self.newest = 17

    def offers(self, _api_key: int) -> bool:
        return True

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        newest = {1: self.newest, 2: 8, 23: self.cluster.epoch_version}[api_key]
        return newest if at_most is None else min(newest, at_most)

    def post(self, api_key: int, version: int, request: Message, timeout_s: float) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._answer(version, request))

    async def call(self, api_key: int, request: Message, answer: Any, *, timeout_s: float, at_most: int = 99) -> Any:
        return await self._answer(self.version_for(api_key), request)

    async def _answer(self, version: int, request: Message) -> Message:
        cluster = self.cluster
        cluster.requests.append((self.node, version, request))
        await asyncio.sleep(0)
        if cluster.lost:
            raise cluster.lost.pop(0)
        if isinstance(request, FetchRequest):
            return await self._fetch(version, request)
        if isinstance(request, ListOffsetsRequest):
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=each.name,
                        partitions=[
                            self._offset(each.name, one.partition_index, one.timestamp) for one in each.partitions
                        ],
                    )
                    for each in request.topics
                ]
            )
        assert isinstance(request, OffsetForLeaderEpochRequest)
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=each.topic, partitions=[self._epoch(each.topic, one.partition) for one in each.partitions]
                )
                for each in request.topics
            ]
        )

    def _offset(self, topic: str, partition: int, timestamp: int) -> ListOffsetsPartitionResponse:
        log = self.cluster.logs[TopicPartition(topic, partition)]
        if log.refusals:
            return ListOffsetsPartitionResponse(partition_index=partition, error_code=log.refusals.pop(0))
        offset = {-2: log.start, -1: log.end}.get(timestamp, log.times.get(timestamp, -1))
        return ListOffsetsPartitionResponse(partition_index=partition, offset=offset, timestamp=5, leader_epoch=3)

    def _epoch(self, topic: str, partition: int) -> EpochEndOffset:
        log = self.cluster.logs[TopicPartition(topic, partition)]
        if log.refusals:
            return EpochEndOffset(partition=partition, error_code=log.refusals.pop(0))
        epoch, end = log.epoch_end or (3, log.end)
        return EpochEndOffset(partition=partition, leader_epoch=epoch, end_offset=end)

    async def _fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        cluster = self.cluster
        if cluster.session_errors:
            return FetchResponse(error_code=cluster.session_errors.pop(0))
        if request.session_epoch <= 0:
            cluster.session = {}
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                cluster.session.pop(TopicPartition(TOPIC, number), None)
        for topic in request.topics:
            assert topic.topic == TOPIC or version >= 13
            for one in topic.partitions:
                cluster.session[TopicPartition(TOPIC, one.partition)] = one
        found = [self._partition(each, asked) for each, asked in cluster.session.items()]
        full = [each for each in found if each.error_code or each.preferred_read_replica >= 0 or each.records]
        if not full:
            # Parked until a test says that there is something.
            cluster.parked += 1
            cluster.news.clear()
            await cluster.news.wait()
            if cluster.lost:
                raise cluster.lost.pop(0)
            found = [self._partition(each, asked) for each, asked in cluster.session.items()]
        by_id = version >= 13
        return FetchResponse(
            session_id=77,
            responses=[
                FetchableTopicResponse(
                    topic="" if by_id else TOPIC, topic_id=cluster.topic_id if by_id else bytes(16), partitions=found
                )
            ],
        )

    def _partition(self, where: TopicPartition, asked: FetchPartition) -> PartitionData:
        log = self.cluster.logs[where]
        answer = PartitionData(
            partition_index=where.partition,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
        )
        if log.refusals:
            answer.error_code = log.refusals.pop(0)
        elif not log.start <= asked.fetch_offset <= log.end:
            answer.error_code = 1
        elif self.cluster.preferred.get(where, self.node) != self.node:
            answer.preferred_read_replica = self.cluster.preferred[where]
        else:
            data = log.read(asked.fetch_offset)
            answer.records = ByteSlice(data, 0, len(data)) if data else None
        return answer


class FakeCluster:
    """Nodes, metadata and engine at once, as far as the read side knows them."""

    def __init__(self) -> None:
        self.logs = {P0: FakeLog(), P1: FakeLog()}
        self.leaders = {P0: 1, P1: 1}
        self.epoch = 3
        self.epoch_version = 4
        self.topic_id = IDS[0]
        self.requests: list[tuple[int, int, Message]] = []
        self.lost: list[Exception] = []
        self.session_errors: list[int] = []
        self.session: dict[TopicPartition, FetchPartition] = {}
        self.preferred: dict[TopicPartition, int] = {}
        self.parked = 0
        self.news = asyncio.Event()
        self.updates = 0
        self.connections: dict[int, FakeConnection] = {}
        self.problem = None
        self.problems = ProblemLog("consumer")
        self.loop = asyncio.get_running_loop()

    # As nodes

    def ready(self, node: int, purpose: str = "") -> FakeConnection:
        return self.connections.setdefault(node, FakeConnection(self, node))

    async def connection(self, node: int, purpose: str = "") -> FakeConnection:
        return self.ready(node)

    # As metadata

    @property
    def view(self) -> ClusterView:
        partitions = tuple(
            PartitionView(each.partition, leader, self.epoch, (1, 2), (1, 2), ())
            for each, leader in self.leaders.items()
        )
        topics = {TOPIC: TopicView(TOPIC, self.topic_id, NONE, False, partitions)}
        brokers = {number: BrokerView(number, "host", number) for number in (1, 2)}
        return ClusterView("c", 1, MappingProxyType(brokers), MappingProxyType(topics))

    def want(self, *_topics: str) -> bool:
        return False

    def request_update(self) -> None:
        self.updates += 1

    async def refreshed(self) -> ClusterView:
        return self.view

    def take_leader(self, topic: str, partition: int, leader: int, epoch: int) -> None:
        self.leaders[TopicPartition(topic, partition)] = leader
        self.epoch = epoch

    # As engine

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon(callback, *arguments)


class ReadSideScene:
    """Everything between a subscription and the records, over the fake cluster."""

    def __init__(
        self, given: Mapping[str, object] | None = None, *, fetch_committed: FetchCommitted | None = None
    ) -> None:
        self.cluster = FakeCluster()
        self.clock = ManualClock()
        settings = Settings.of(CONSUMER, {"bootstrap.servers": "x:1", "retry.backoff.ms": 0, **(given or {})})
        self.subscription = SubscriptionState()
        cluster: Any = self.cluster
        self.context = ConsumerContext(
            settings, cluster, cluster, cluster, self.subscription, Wakeup(self.clock), self.clock
        )
        self.tasks = Tasks("test")
        self.fetch_buffer = FetchBuffer(self.subscription.lock, lambda: self.fetcher.schedule_if_idle())
        self.lookup = OffsetLookup(self.context)
        reset_strategy = AutoOffsetResetStrategy(settings.text("auto.offset.reset"))
        self.positions = Positions(
            self.context, self.tasks, reset_strategy, self.lookup, lambda: self.fetcher.schedule(), fetch_committed
        )
        responses = FetchResponseHandler(self.context, self.fetch_buffer, self.positions.reset_or_fail)
        self.fetcher = Fetcher(self.context, self.tasks, self.fetch_buffer, self.positions, responses)

    async def assign(self, *partitions: TopicPartition) -> None:
        self.subscription.assign(partitions)
        self.fetcher.schedule()
        await self.settle()

    async def settle(self) -> None:
        """Let everything happen that can happen without a test's doing."""
        for _ in range(60):
            await asyncio.sleep(0)

    async def news(self) -> None:
        self.cluster.news.set()
        await self.settle()

    def poll(self, most: int = 1000) -> list[tuple[int, int]]:
        problem = self.subscription.take_failure()
        if problem is not None:
            self.fetcher.schedule()
            raise problem
        return [(each.partition, each.offset) for each in self.fetch_buffer.take(most)]

    async def offsets(self, rounds: int = 10) -> list[tuple[int, int]]:
        """What polls return until nothing more comes."""
        found: list[tuple[int, int]] = []
        for _ in range(rounds):
            found += self.poll()
            await self.settle()
        return found

    def position(self, partition: TopicPartition = P0) -> int:
        return int(self.subscription.state(partition).position)

    def asked(self, kind: type[Message]) -> list[Any]:
        return [request for _, _, request in self.cluster.requests if isinstance(request, kind)]

    async def close(self) -> None:
        await self.tasks.close()
