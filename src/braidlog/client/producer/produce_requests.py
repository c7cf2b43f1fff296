"""A Produce request written straight from batches, and its answers by batch (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Final

from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder
from braidlog.client.producer.accumulator.producer_batch import ProducerBatch
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator
from braidlog.core.ids import ZERO_ID
from braidlog.wire.errors import refuse
from braidlog.wire.generated.produce import PartitionProduceResponse, ProduceResponse
from braidlog.wire.message import Message
from braidlog.wire.writer import SPLICE_ABOVE, Writer

_FLEXIBLE_FROM: Final = 9
_IDS_FROM: Final = 13


class BatchesRequest(Message):
    """Encoded batches of different partitions; the layout is that of `ProduceRequest`, without an object for each."""

    __slots__ = ("acks", "batches", "timeout_ms", "topic_ids", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        batches: list[ProducerBatch],
        topic_ids: dict[str, bytes],
    ) -> None:
        self.transactional_id: str | None = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.batches = batches
        self.topic_ids = topic_ids

    def encode(self, w: Writer, version: int) -> None:
        flex = version >= _FLEXIBLE_FROM
        if version >= 3:
            w.nullable_string(self.transactional_id, flex)
        elif self.transactional_id is not None:
            refuse("ProduceRequest.transactional_id", version)
        w.int16(self.acks)
        w.int32(self.timeout_ms)
        topics = by_topic(self.batches)
        w.count(len(topics), flex)
        for name, batches in topics.items():
            if version >= _IDS_FROM:
                w.uuid(self.topic_ids[name])
            else:
                w.string(name, flex)
            w.count(len(batches), flex)
            for batch in batches:
                w.int32(batch.partition)
                _write_batch(w, batch, flex)
                if flex:
                    w.uvarint(0)
            if flex:
                w.uvarint(0)
        if flex:
            w.uvarint(0)


def _write_batch(w: Writer, batch: ProducerBatch, flex: bool) -> None:
    """Length, header, body; a large body goes out from where it lies."""
    head = batch.head
    assert head is not None
    body = batch.body
    # As the length of an array is written, so is that of bytes.
    w.count(len(head) + len(body), flex)
    w.out.write(head)
    if len(body) > SPLICE_ABOVE:
        w.splices.append((len(w.out), body))
        w.spliced += len(body)
    else:
        w.out.write(body)


def by_topic(batches: list[ProducerBatch]) -> dict[str, list[ProducerBatch]]:
    topics: dict[str, list[ProducerBatch]] = {}
    for batch in batches:
        found = topics.get(batch.topic)
        if found is None:
            topics[batch.topic] = [batch]
        else:
            found.append(batch)
    return topics


class ProduceRequests:
    """What all produce requests of a producer have in common."""

    def __init__(self, batch_encoder: BatchEncoder, transactional_id: str | None, acks: int, timeout_s: float) -> None:
        self.acks = acks
        self.timeout_s = timeout_s
        # The newest version that transactions allow.
        self.newest: int | None = None
        self._batch_encoder = batch_encoder
        self._transactional_id: str | None = transactional_id
        self._timeout_ms = round(timeout_s * 1000)

    def make(self, batches: list[ProducerBatch], accumulator: RecordAccumulator) -> BatchesRequest:
        topic_ids: dict[str, bytes] = {}
        for batch in batches:
            self._batch_encoder.encode(batch, accumulator.pool)
            topic_ids[batch.topic] = accumulator.topics[batch.topic].topic_id
        return BatchesRequest(self._transactional_id, self.acks, self._timeout_ms, batches, topic_ids)

    def at_most(self, request: BatchesRequest) -> int | None:
        """The newest version that the request can have, where that is not simply the newest."""
        newest = self.newest
        for topic_id in request.topic_ids.values():
            if topic_id == ZERO_ID:
                return _IDS_FROM - 1 if newest is None else min(newest, _IDS_FROM - 1)
        return newest


class InFlightRequest:
    """A request under way."""

    __slots__ = ("node", "request", "version")

    def __init__(self, node: int, request: BatchesRequest, version: int) -> None:
        self.node = node
        self.request = request
        self.version = version


def responses_by_batch(
    response: ProduceResponse, sent: InFlightRequest
) -> list[tuple[ProducerBatch, PartitionProduceResponse | None]]:
    """Each batch with what the broker says of it; none where it says nothing."""
    batches = sent.request.batches
    if len(batches) == 1 and len(response.responses) == 1:
        only = response.responses[0]
        batch = batches[0]
        if len(only.partition_responses) == 1 and only.partition_responses[0].index == batch.partition:
            is_it = (
                only.topic_id == sent.request.topic_ids[batch.topic]
                if sent.version >= _IDS_FROM
                else (only.name == batch.topic)
            )
            return [(batch, only.partition_responses[0] if is_it else None)]
    by_place: dict[tuple[str, int], PartitionProduceResponse] = {}
    names: dict[bytes, str] = {}
    if sent.version >= _IDS_FROM:
        names = {topic_id: name for name, topic_id in sent.request.topic_ids.items()}
    for topic in response.responses:
        name = names.get(topic.topic_id, "") if sent.version >= _IDS_FROM else topic.name
        for answer in topic.partition_responses:
            by_place[(name, answer.index)] = answer
    return [(batch, by_place.get((batch.topic, batch.partition))) for batch in batches]
