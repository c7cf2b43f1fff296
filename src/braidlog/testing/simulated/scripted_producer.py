"""A producer as a simulation scripts it: pipelined batches over several partitions, retried in order while idempotent.

queue of each partition    b0 b1 b2 …      first request: every partition's b0, second: every b1, … all at once
after a failure            what is not acknowledged goes again, same producer id, same sequences
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from braidlog.core.protocol_errors import (
    DuplicateSequenceNumberError,
    OutOfOrderSequenceNumberError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.testing.simulated.scripted_client import NoAnswer, ScriptedClient
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record

_VERSION: Final = 13
_BACKOFF_S: Final = 0.1
_GIVE_UP_AFTER_S: Final = 120.0
_TOPIC_IS_GONE: Final = (UnknownTopicIdError.code, UnknownTopicOrPartitionError.code)

ALL: Final = -1


class PartitionTarget(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerListener(Protocol):
    def sent(self, target: PartitionTarget, records: Sequence[Record]) -> None:
        """They may be in the log from now on."""
        ...

    def acknowledged(self, target: PartitionTarget, records: Sequence[Record], base_offset: int) -> None:
        """They are; `base_offset` -1 says that the broker did not tell where."""
        ...

    def lost_track(self, target: PartitionTarget, producer_id: int) -> None:
        """The broker has forgotten the sequences of this idempotent producer."""
        ...


class _Batch:
    def __init__(self, target: PartitionTarget, records: Sequence[Record], codec: int, sequence: int) -> None:
        self.target = target
        self.records = records
        self.codec = codec
        self.sequence = sequence
        self.done = False
        # Others of its partition were sent behind it before its answer came; and an answer of its was lost.
        self.followed = False
        self.unsure = False

    @property
    def may_be_forgotten(self) -> bool:
        """A broker that stopped remembers only the last batch of each producer, as Kafka does."""
        return self.followed and self.unsure


class ScriptedProducer:
    def __init__(self, client: ScriptedClient, listener: ProducerListener, *, acks: int, idempotent: bool) -> None:
        self.producer_id = -1
        self._client = client
        self._listener = listener
        self._acks = acks
        self._idempotent = idempotent
        self._epoch = -1
        self._sequences: dict[PartitionTarget, int] = {}
        # Where its first sequence was acknowledged, so that the broker must know the others; of a producer that it does
        # not know, a broker takes any sequence, as Kafka does, also one that overtook a first one that failed.
        self._known_to: dict[PartitionTarget, None] = {}

    async def send(self, batches: Sequence[tuple[PartitionTarget, Sequence[Record], int]]) -> None:
        """Send (target, records, codec) until each is acknowledged, refused for good, or given up."""
        if self._idempotent and self.producer_id < 0 and not await self._begin():
            return
        queues: dict[PartitionTarget, list[_Batch]] = {}
        for target, records, codec in batches:
            sequence = -1
            if self._idempotent:
                sequence = self._sequences.get(target, 0)
                self._sequences[target] = sequence + len(records)
            queue = queues.setdefault(target, [])
            if queue:
                queue[-1].followed = True
            queue.append(_Batch(target, records, codec, sequence))
            self._listener.sent(target, records)
        if self._acks == 0:
            self._send_unanswered(queues)
        else:
            await self._send_all(queues)

    async def _send_all(self, queues: dict[PartitionTarget, list[_Batch]]) -> None:
        give_up_at = asyncio.get_running_loop().time() + _GIVE_UP_AFTER_S
        while queues:
            depth = max(map(len, queues.values()))
            rounds = [[queue[step] for queue in queues.values() if len(queue) > step] for step in range(depth)]
            await asyncio.gather(*[self._ask(batches, step == 0) for step, batches in enumerate(rounds)])
            for target in list(queues):
                queues[target] = [batch for batch in queues[target] if not batch.done]
                if not queues[target]:
                    del queues[target]
            if not self._idempotent or not queues or self.producer_id < 0:
                return
            if asyncio.get_running_loop().time() > give_up_at:
                self._forget()
                return
            await asyncio.sleep(_BACKOFF_S)

    async def _ask(self, batches: list[_Batch], first: bool) -> None:
        """One request; marks what needs no further one."""
        try:
            response = await self._client.call(0, self._request(batches), _VERSION, ProduceResponse)
        except NoAnswer:
            for batch in batches:
                batch.unsure = True
            return
        answers = {
            (topic.topic_id, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            answer = answers[batch.target.topic_id, batch.target.partition]
            code = answer.error_code
            if code == 0 or (code == DuplicateSequenceNumberError.code and self._idempotent):
                batch.done = True
                if batch.sequence == 0:
                    self._known_to[batch.target] = None
                self._listener.acknowledged(batch.target, batch.records, answer.base_offset if code == 0 else -1)
            elif code in _TOPIC_IS_GONE:
                batch.done = True
            elif code == OutOfOrderSequenceNumberError.code and first:
                # Later ones may only follow a first one that failed; a first one means that the broker has forgotten.
                batch.done = True
                if batch.target in self._known_to and self.producer_id >= 0 and not batch.may_be_forgotten:
                    self._listener.lost_track(batch.target, self.producer_id)
                self._forget()

    def _send_unanswered(self, queues: dict[PartitionTarget, list[_Batch]]) -> None:
        for queue in queues.values():
            for batch in queue:
                try:
                    self._client.send_only(0, self._request([batch]), _VERSION)
                except NoAnswer:
                    return

    def _request(self, batches: list[_Batch]) -> ProduceRequest:
        by_topic: dict[bytes, list[PartitionProduceData]] = {}
        for batch in batches:
            data = build_batch(
                batch.records,
                codec=batch.codec,
                producer_id=self.producer_id,
                producer_epoch=self._epoch,
                base_sequence=batch.sequence,
            )
            by_topic.setdefault(batch.target.topic_id, []).append(
                PartitionProduceData(index=batch.target.partition, records=data)
            )
        topics = [TopicProduceData(topic_id=key, partition_data=data) for key, data in by_topic.items()]
        return ProduceRequest(acks=self._acks, timeout_ms=30_000, topic_data=topics)

    async def _begin(self) -> bool:
        try:
            request = InitProducerIdRequest(transactional_id=None)
            response = await self._client.call(22, request, 4, InitProducerIdResponse)
        except NoAnswer:
            return False
        if response.error_code != 0:
            return False
        self.producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences = {}
        self._known_to = {}
        return True

    def _forget(self) -> None:
        """Batches whose fate is unknown leave a gap in the sequences: go on with another id."""
        self.producer_id = -1
