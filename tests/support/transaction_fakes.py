"""A cluster in memory that coordinates transactions as a test wants, and the parts of a producer that these need."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from braidlog.client.problem_log import ProblemLog
from braidlog.client.producer.transactions.coordinator_client import TransactionCoordinatorClient
from braidlog.client.producer.transactions.transaction_manager import TransactionManager
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from braidlog.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from braidlog.wire.message import Message

NAMES = {
    FindCoordinatorRequest: "find",
    InitProducerIdRequest: "init",
    AddPartitionsToTxnRequest: "add partitions",
    AddOffsetsToTxnRequest: "add offsets",
    TxnOffsetCommitRequest: "commit offsets",
    EndTxnRequest: "end",
}
# Of Kafka 3.9; those of 4.x with transaction.version 2 in `implicit`.
VERSIONS = {10: 6, 22: 5, 24: 5, 25: 4, 26: 5, 28: 5}


class FakeCluster:
    """Every broker in one; `faults` says what a request by its name is answered with, before it succeeds."""

    request_timeout_s = 1.0

    def __init__(self, *, implicit: bool = False) -> None:
        self.features: Mapping[str, int] = {"transaction.version": 2 if implicit else 1}
        self.versions = dict(VERSIONS)
        self.faults: dict[str, deque[int | Exception]] = {}
        # Names in order, "find" left out unless asked for; and the requests with their versions.
        self.asked: list[str] = []
        self.finds: list[str] = []
        self.requests: list[tuple[Any, int]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.producer_id, self.epoch = 7, -1
        self.committed = 0
        self.abandoned = 0
        self.learnt: dict[int, tuple[str, int]] = {}
        self.problems = ProblemLog("producer")

    def fail(self, name: str, *faults: int | Exception) -> None:
        self.faults.setdefault(name, deque()).extend(faults)

    def hold(self, name: str) -> asyncio.Event:
        """Answers wait for this."""
        return self.held.setdefault(name, asyncio.Event())

    async def any(self) -> FakeCluster:
        return self

    async def connection(self, node_id: int, purpose: str = "") -> FakeCluster:
        assert purpose == "coordinator"
        if self.abandoned:
            # As for all that wait for a connection that is no longer made.
            self.abandoned -= 1
            raise asyncio.CancelledError
        return self

    def learn_one(self, node_id: int, address: tuple[str, int]) -> None:
        self.learnt[node_id] = address

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        newest = self.versions[api_key]
        return newest if at_most is None else min(newest, at_most)

    async def call(
        self, api_key: int, request: Message, answer: type[Any], *, at_most: int | None = None, timeout_s: float
    ) -> Any:
        name = NAMES[type(request)]
        version = self.version_for(api_key, at_most)
        if name == "find":
            assert isinstance(request, FindCoordinatorRequest)
            self.finds.append(request.key or request.coordinator_keys[0])
        else:
            self.asked.append(name)
            self.requests.append((request, version))
        if name in self.held:
            await self.held[name].wait()
        await asyncio.sleep(0)
        fault = self.faults[name].popleft() if self.faults.get(name) else 0
        if isinstance(fault, Exception):
            raise fault
        return self._answer(request, version, fault)

    def _answer(self, request: Message, version: int, code: int) -> Message:
        if isinstance(request, FindCoordinatorRequest):
            if version >= 4:
                return FindCoordinatorResponse(
                    coordinators=[
                        Coordinator(key=request.coordinator_keys[0], node_id=1, host="host", port=9, error_code=code)
                    ]
                )
            return FindCoordinatorResponse(node_id=1, host="host", port=9, error_code=code)
        if isinstance(request, InitProducerIdRequest):
            self.epoch += code == 0
            return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch, error_code=code)
        if isinstance(request, AddPartitionsToTxnRequest):
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
            )
        if isinstance(request, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=code)
        if isinstance(request, TxnOffsetCommitRequest):
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        assert isinstance(request, EndTxnRequest)
        self.committed += request.committed and code == 0
        if version < 5:
            return EndTxnResponse(error_code=code)
        self.epoch += code == 0
        return EndTxnResponse(error_code=code, producer_id=self.producer_id, producer_epoch=self.epoch)


class FakeBatch:
    def __init__(self, topic: str = "t", partition: int = 0, base_sequence: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.base_sequence = base_sequence


class FakeRecords:
    """An accumulator without records: the calls it got, and a flush that ends when it may."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.epochs = 0
        self.dropped: list[Exception] = []
        self.failed: list[Exception] = []
        self.flushed = asyncio.Event()
        self.flushed.set()
        self.while_draining: Callable[[], object] | None = None

    def refuse(self, error: Exception | None) -> None:
        self.refusal = error

    def begin_transaction(self) -> None:
        self.epochs += 1

    def abort_unsent(self, error: Exception) -> None:
        self.dropped.append(error)

    def fail_all(self, error: Exception) -> None:
        self.failed.append(error)

    async def drained(self) -> None:
        if self.while_draining is not None:
            self.while_draining()
        await self.flushed.wait()


class FakeIdentity:
    def __init__(self) -> None:
        self.adopted: list[tuple[int, int]] = []

    def set_producer_id_and_epoch(self, producer_id: int, epoch: int) -> None:
        self.adopted.append((producer_id, epoch))


class LoopWorker:
    """The engine, when the test runs on its thread."""

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *arguments)


class Scene:
    """A producer's transactions between fakes; made where a loop runs."""

    def __init__(self, *, implicit: bool = False) -> None:
        self.cluster = FakeCluster(implicit=implicit)
        self.records = FakeRecords()
        self.identity = FakeIdentity()
        self.wakes = 0
        coordinator = TransactionCoordinatorClient("tid", self.cluster, timeout_ms=60_000, pauses_s=(0.0, 0.0))
        self.manager = TransactionManager(
            "tid", LoopWorker(), coordinator, self.identity, self.records, self.records, self._wake
        )

    def _wake(self) -> None:
        self.wakes += 1

    async def begun(self) -> Scene:
        """In a transaction, with a batch sent."""
        await self.manager.initialise()
        self.manager.begin()
        await self.send("t", 0)
        self.cluster.asked.clear()
        return self

    async def send(self, topic: str, partition: int) -> FakeBatch:
        """A record's way: noted, waiting for its partition to be added, sent."""
        self.manager.on_first_record(topic, partition)
        await until(lambda: self.manager.may_send(topic, partition))
        batch = FakeBatch(topic, partition)
        self.manager.on_batch_sent(batch)
        return batch


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come about")


HERE = TopicPartition("t", 0)
