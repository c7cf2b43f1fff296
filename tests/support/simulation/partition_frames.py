"""Produce and Fetch as brokers and clients exchange them, written into a history and held against the invariants."""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.core.protocol_errors import DuplicateSequenceNumberError, OutOfOrderSequenceNumberError
from braidlog.core.slices import ByteSlice
from braidlog.testing.simulated.connection import SimulatedConnection
from braidlog.testing.simulated.loop import Process
from braidlog.wire.generated.fetch import FetchRequest, FetchResponse, PartitionData
from braidlog.wire.generated.produce import ProduceRequest, ProduceResponse
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.writer import Records
from support.simulation.frames import Exchange
from support.simulation.history import History, PartitionRead, PartitionTarget, name_of
from support.simulation.invariants import observe

PRODUCE: Final = 0
FETCH: Final = 1
_FULL_FETCH: Final = (-1, 0)


def bytes_of(records: Records) -> bytes:
    if records is None:
        return b""
    if isinstance(records, ByteSlice):
        return records.tobytes()
    assert isinstance(records, bytes | memoryview)
    return bytes(records)


def partition_read(target: PartitionTarget, asked_from: int, data: PartitionData, told_before: int) -> PartitionRead:
    content = bytes_of(data.records) if data.error_code == 0 else b""
    records = [record for record in read_records(content) if record.offset >= asked_from]
    next_offset = asked_from
    for header in iterate_headers(content, 0, len(content)):
        next_offset = max(next_offset, header.last_offset + 1)
    return PartitionRead(
        target,
        asked_from,
        data.error_code,
        data.high_watermark,
        data.log_start_offset,
        records,
        next_offset,
        told_before,
    )


class FetchFrames:
    """Every response to a fetch is checked and remembered; but of the verifier, which does so by itself."""

    def __init__(self, history: History, verifier: Process) -> None:
        self._history = history
        self._verifier = verifier
        # Of each client's fetch session with a broker, which outlives a connection: where partitions are read from.
        self._positions: dict[tuple[Process, str], dict[tuple[bytes, int], int]] = {}

    def requested(self, connection: SimulatedConnection, request: FetchRequest) -> object:
        positions = self._positions.setdefault((connection.client, connection.peer), {})
        if request.session_epoch in _FULL_FETCH:
            positions.clear()
        for topic in request.topics:
            for partition in topic.partitions:
                positions[topic.topic_id, partition.partition] = partition.fetch_offset
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                positions.pop((gone.topic_id, index), None)
        reported = {partition.target: partition.high_watermark for partition in self._history.partitions}
        return dict(positions), reported

    def answered(self, exchange: Exchange, response: FetchResponse) -> None:
        if exchange.connection.client is self._verifier:
            return
        positions, reported = exchange.note
        for topic in response.responses:
            for data in topic.partitions:
                partition = self._history.find(topic.topic_id, data.partition_index)
                if partition is None or partition.unsettled or data.error_code != 0:
                    continue
                asked_from = positions[topic.topic_id, data.partition_index]
                target = partition.target
                observe(partition, partition_read(target, asked_from, data, reported.get(target, 0)))

    def lost(self, exchange: Exchange) -> None:
        """The client begins a new session."""


class _Batch(NamedTuple):
    target: PartitionTarget
    records: list[Record]
    identity: tuple[int, int]
    first: int
    last: int


class _Sequences:
    """Of one producer epoch in one partition."""

    def __init__(self) -> None:
        self.acknowledged = -1
        self.highest = -1
        # First sequences of batches that were sent, and may have been written, without an answer.
        self.in_doubt: dict[int, None] = {}


class ProduceFrames:
    """What was sent and acknowledged, and whether brokers keep track of the sequences of idempotent producers."""

    def __init__(self, history: History) -> None:
        # Ids and epochs of idempotent producers.
        self.producers: dict[tuple[int, int], None] = {}
        self._history = history
        self._sequences: dict[tuple[PartitionTarget, tuple[int, int]], _Sequences] = {}
        # Records whose first request has no answer, with the producer epoch that it had.
        self._in_doubt: dict[str, tuple[int, int]] = {}

    def requested(self, connection: SimulatedConnection, request: ProduceRequest) -> object:
        batches: list[_Batch] = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                target = PartitionTarget("", topic.topic_id, data.index)
                batches.append(self._sent(target, bytes_of(data.records)))
        if request.acks == 0:
            return ()
        return batches

    def _sent(self, target: PartitionTarget, content: bytes) -> _Batch:
        (header,) = iterate_headers(content, 0, len(content))
        records = list(read_records(content))
        self._history.sent(target, records)
        identity = header.producer_id, header.producer_epoch
        batch = _Batch(target, records, identity, header.base_sequence, header.base_sequence + len(records) - 1)
        if header.producer_id >= 0:
            self.producers[identity] = None
            if self._in_doubt.get(name_of(records[0]), identity) != identity:
                self._history.sent_again(target, records)
            sequences = self._of(batch)
            sequences.highest = max(sequences.highest, batch.last)
        return batch

    def _of(self, batch: _Batch) -> _Sequences:
        return self._sequences.setdefault((batch.target, batch.identity), _Sequences())

    def answered(self, exchange: Exchange, response: ProduceResponse) -> None:
        codes = {
            (topic.topic_id, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for batch in exchange.note:
            answer = codes[batch.target.topic_id, batch.target.partition]
            sequences = self._of(batch)
            if answer.error_code in (0, DuplicateSequenceNumberError.code):
                known = answer.error_code == 0
                self._history.acknowledged(batch.target, batch.records, answer.base_offset if known else -1)
                sequences.acknowledged = max(sequences.acknowledged, batch.last)
            elif answer.error_code == OutOfOrderSequenceNumberError.code:
                self._judge(batch, sequences)

    def _judge(self, batch: _Batch, sequences: _Sequences) -> None:
        """Later batches may only follow one that failed; the next one is refused by a broker that has forgotten."""
        is_next = sequences.acknowledged >= 0 and batch.first == sequences.acknowledged + 1
        # A broker that stopped remembers only the last batch of each producer, as Kafka does.
        may_be_forgotten = batch.first in sequences.in_doubt and sequences.highest > batch.last
        if is_next and not may_be_forgotten:
            self._history.lost_track(batch.target, batch.identity)

    def lost(self, exchange: Exchange) -> None:
        for batch in exchange.note:
            self._of(batch).in_doubt[batch.first] = None
            for record in batch.records:
                self._in_doubt.setdefault(name_of(record), batch.identity)
