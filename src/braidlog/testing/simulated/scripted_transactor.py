"""A transactional producer as a simulation scripts it: records and offsets in transactions that end in every way.

    init → (records to some partitions, offsets of a group) … → commit | abort | walk away → …

Both manners of the protocol: partitions added by request and EndTxn that keeps the epoch, or partitions added by the
produce itself and EndTxn that raises it (transaction version 2, KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaStorageError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
)
from braidlog.testing.simulated.scripted_client import NoAnswer, ScriptedClient
from braidlog.testing.simulated.scripted_member import find_coordinator
from braidlog.testing.simulated.scripted_producer import PartitionTarget
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from braidlog.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record

_BACKOFF_S: Final = 0.1
_TRIES: Final = 30
_LATER: Final = (
    CoordinatorLoadInProgressError.code,
    CoordinatorNotAvailableError.code,
    NotCoordinatorError.code,
    ConcurrentTransactionsError.code,
    NotLeaderOrFollowerError.code,
    NotEnoughReplicasError.code,
    KafkaStorageError.code,
)


class Refused(Exception):
    """This transaction, or this producer, is over: begin again with an init."""


class TransactionListener(Protocol):
    def began(self, transaction: str) -> None: ...

    def wrote(self, transaction: str, target: PartitionTarget, names: Sequence[str]) -> None:
        """They may be in the log from now on."""
        ...

    def offset_sent(self, transaction: str, group: str, offset: int) -> None: ...

    def ending(self, transaction: str, commits: bool) -> None:
        """The end was asked for: it may have happened from now on."""
        ...

    def ended(self, transaction: str, commits: bool) -> None:
        """The coordinator said so."""
        ...

    def complete(self, transaction: str) -> bool:
        """Whether everything that was written to it is acknowledged, so that it may be committed."""
        ...

    def acknowledged(self, transaction: str, target: PartitionTarget, names: Sequence[str]) -> None: ...

    def fenced_off(self, transaction: str) -> None:
        """A new init succeeded: what was not committed before never will be."""
        ...


class ScriptedTransactor:
    def __init__(
        self, client: ScriptedClient, name: str, group: str, topic: str, listener: TransactionListener, random: Random
    ) -> None:
        self._client = client
        self._name = name
        self._group = group
        self._topic = topic
        self._listener = listener
        self._random = random
        self._producer_id = -1
        self._epoch = -1
        self._newer = random.random() < 0.5
        self._sequences: dict[PartitionTarget, int] = {}
        self._added: dict[PartitionTarget, None] = {}
        self._count = 0
        self._open: str | None = None

    async def transact(self, targets: Sequence[PartitionTarget], now_ms: int) -> None:
        """One transaction from its beginning to one of its ends."""
        try:
            if self._producer_id < 0:
                await self._init()
            await self._transaction(targets, now_ms)
        except Refused:
            self._producer_id = -1
        except NoAnswer:
            # Not even what was asked for is known: the next producer of this name clears it up.
            self._producer_id = -1
            await asyncio.sleep(_BACKOFF_S)

    async def _init(self) -> None:
        if not await find_coordinator(self._client, self._name, 1):
            raise Refused
        if not await find_coordinator(self._client, self._group, 0):
            raise Refused
        for _ in range(_TRIES):
            request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=4_000)
            response = await self._client.call(22, request, 4, InitProducerIdResponse)
            if response.error_code == 0:
                if self._open is not None:
                    self._listener.fenced_off(self._open)
                    self._open = None
                self._producer_id, self._epoch = response.producer_id, response.producer_epoch
                self._sequences = {}
                return
            if response.error_code not in _LATER:
                break
            await asyncio.sleep(_BACKOFF_S)
        raise Refused

    async def _transaction(self, targets: Sequence[PartitionTarget], now_ms: int) -> None:
        self._count += 1
        transaction = self._open = f"{self._name}/{self._count}"
        self._added = {}
        self._listener.began(transaction)
        for step in range(self._random.randint(1, 4)):
            target = self._random.choice(targets)
            names = [f"{transaction}/{step}.{number}" for number in range(self._random.randint(1, 3))]
            await self._write(transaction, target, names, now_ms)
            await asyncio.sleep(self._random.random() * 0.2)
        if self._random.random() < 0.6:
            await self._send_offset(transaction)
        manner = self._random.random()
        if manner < 0.1:
            # Walks away; its time runs out, or a new init ends it.
            await asyncio.sleep(self._random.random() * 8)
            raise Refused
        await self._end(transaction, commits=manner < 0.75)

    async def _write(self, transaction: str, target: PartitionTarget, names: Sequence[str], now_ms: int) -> None:
        if not self._newer and target not in self._added:
            topics = [AddPartitionsToTxnTopic(name=target.topic, partitions=[target.partition])]
            await self._until_done(lambda: self._add_partition(topics))
        self._added[target] = None
        sequence = self._sequences.get(target, 0)
        batch = build_batch(
            [Record(timestamp=now_ms, key=name.encode(), value=b"") for name in names],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._listener.wrote(transaction, target, names)
        await self._until_done(lambda: self._produce(target, batch))
        self._sequences[target] = sequence + len(names)
        self._listener.acknowledged(transaction, target, names)

    async def _add_partition(self, topics: list[AddPartitionsToTxnTopic]) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=topics,
        )
        response = await self._client.call(24, request, 3, AddPartitionsToTxnResponse)
        return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def _produce(self, target: PartitionTarget, batch: bytes) -> int:
        data = PartitionProduceData(index=target.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=target.topic, partition_data=[data])],
        )
        response = await self._client.call(0, request, 12 if self._newer else 11, ProduceResponse)
        return response.responses[0].partition_responses[0].error_code

    async def _send_offset(self, transaction: str) -> None:
        if not self._newer:
            await self._until_done(self._add_offsets)
        offset = self._count
        self._listener.offset_sent(transaction, self._group, offset)
        await self._until_done(lambda: self._commit_offset(offset))

    async def _add_offsets(self) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=self._group,
        )
        return (await self._client.call(25, request, 3, AddOffsetsToTxnResponse)).error_code

    async def _commit_offset(self, offset: int) -> int:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        response = await self._client.call(28, request, 5 if self._newer else 4, TxnOffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    async def _end(self, transaction: str, commits: bool) -> None:
        commits = commits and self._listener.complete(transaction)
        self._listener.ending(transaction, commits)
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commits,
        )
        answer: EndTxnResponse | None = None
        for _ in range(_TRIES):
            try:
                answer = await self._client.call(26, request, 5 if self._newer else 4, EndTxnResponse)
            except NoAnswer:
                # The same question again: the coordinator must tell a retry from a new transaction's end.
                await asyncio.sleep(_BACKOFF_S)
                continue
            if answer.error_code not in _LATER:
                break
            await asyncio.sleep(_BACKOFF_S)
        if answer is None or answer.error_code != 0:
            raise Refused
        self._listener.ended(transaction, commits)
        self._open = None
        if self._newer:
            if (answer.producer_id, answer.producer_epoch) != (self._producer_id, self._epoch):
                self._sequences = {}
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _until_done(self, ask: Ask) -> None:
        for _ in range(_TRIES):
            code = await ask()
            if code == 0:
                return
            if code not in _LATER:
                break
            await asyncio.sleep(_BACKOFF_S)
        raise Refused


class Ask(Protocol):
    async def __call__(self) -> int: ...
