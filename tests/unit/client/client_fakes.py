"""A cluster of fake brokers that answer produce and fetch requests from memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from braidlog.client.cluster import Cluster
from braidlog.client.node import NoConnection
from braidlog.core.slices import ByteSlice
from braidlog.wire.generated.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from braidlog.wire.generated.metadata import MetadataResponsePartition, MetadataResponseTopic
from braidlog.wire.generated.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from braidlog.wire.records.reading import Record, read_records
from support.patience import Patience

__all__ = ["FakeCluster", "FakeNode", "Patience", "fetched", "TOPIC"]

TOPIC = "orders"


class FakeNode:
    """Takes what is produced; `refusals` are error codes for the next batches, None accepts one."""

    def __init__(self) -> None:
        self.logs: dict[int, list[Record]] = {}
        self.requests: list[list[int]] = []
        self.refusals: deque[int | None] = deque()
        self.largest_batch: int | None = None
        self.fetches: deque[PartitionData | Exception] = deque()
        self.fetched_from: list[dict[int, int]] = []

    def call(self, api_key: int, request: Any, answer: Any, *, at_most: int | None = None) -> Any:
        if isinstance(request, ProduceRequest):
            return self._produce(request)
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        self.fetched_from.append({each.partition: each.fetch_offset for each in topic.partitions})
        answered = self.fetches.popleft() if self.fetches else None
        if isinstance(answered, Exception):
            raise answered
        partitions = [] if answered is None else [answered]
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=partitions)])

    def send_only(self, api_key: int, request: Any, *, at_most: int | None = None) -> None:
        self._produce(request)

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        self.requests.append([each.index for each in topic.partition_data])
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=TOPIC,
                    partition_responses=[self._append(each.index, each.records) for each in topic.partition_data],
                )
            ]
        )

    def _append(self, partition: int, records: Any) -> PartitionProduceResponse:
        code = self.refusals.popleft() if self.refusals else None
        found = read_records(records)
        if self.largest_batch is not None and len(found) > self.largest_batch:
            code = 10
        if code is not None:
            return PartitionProduceResponse(index=partition, error_code=code, base_offset=-1)
        log = self.logs.setdefault(partition, [])
        log += found
        return PartitionProduceResponse(index=partition, base_offset=len(log) - len(found))


class FakeCluster(Cluster):
    """Leaders by partition; `on_refresh` may move them, as an election would."""

    def __init__(self, leaders: list[int], on_refresh: Callable[[FakeCluster], None] | None = None) -> None:
        self.timeout_s = 1.0
        self.leaders = leaders
        self.fakes = {leader: FakeNode() for leader in leaders if leader >= 0}
        self.refreshed = 0
        self.starts: dict[int, int] = {}
        self._on_refresh = on_refresh

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        self.refreshed += 1
        if self.refreshed > 1 and self._on_refresh is not None:
            self._on_refresh(self)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in enumerate(self.leaders)
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

    def node(self, broker_id: int) -> Any:
        if broker_id not in self.fakes:
            raise NoConnection(f"broker {broker_id} is away")
        return self.fakes[broker_id]

    def forget(self, broker_id: int) -> None:
        pass

    def offsets(self, name: str, timestamps: Any, *, committed: bool = False) -> dict[int, int]:
        return {partition: self.starts.get(partition, 0) for partition in timestamps}


def fetched(partition: int, data: bytes = b"", error_code: int = 0) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=error_code, records=ByteSlice(data, 0, len(data)))
