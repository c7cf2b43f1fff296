"""Writes records to a topic: gathered by partition, sent in batches to the partitions' leaders."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from braidlog.client.cluster import MOVED_LEADER, Cluster
from braidlog.client.node import NoConnection
from braidlog.client.partitioner import StickyPartition, partition_of_key
from braidlog.client.refusals import refusal
from braidlog.client.retrying import Retry
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    NONE,
    KafkaStorageError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    ProtocolError,
)
from braidlog.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from braidlog.wire.records.batch import CODEC_NONE
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record

PRODUCE: Final = 0
# The newest version that names topics; later ones give their ids instead.
_NEWEST: Final = 12

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

# Well below the 1 MiB that brokers take by default, and what all partitions together may gather.
_BATCH_BYTES: Final = 512 * 1024
_GATHERED_BYTES: Final = 8 * 1024 * 1024
# What a record takes besides its key, value and headers, roughly.
_RECORD_OVERHEAD: Final = 24

# Nothing was appended when one of these is answered, so that trying again writes no record twice.
_SAFE_TO_REPEAT: Final = (*MOVED_LEADER, NotEnoughReplicasError.code, KafkaStorageError.code)


class _Batch(NamedTuple):
    partition: int
    records: list[Record]


class TopicWriter:
    """`add` records, `flush` at the end; `written` counts what was acknowledged (with acks=0: sent).

    `offsets` has by partition the first and last offset that was given; nothing with acks=0.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        acks: int = ACKS_ALL,
        codec: int = CODEC_NONE,
        random: Random | None = None,
        new_retry: Callable[[float], Retry] = Retry,
    ) -> None:
        self.topic = topic
        self.written = 0
        self.offsets: dict[int, tuple[int, int]] = {}
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._new_retry = new_retry
        self._found = cluster.topic(topic, create=True)
        self._partitions = len(self._found.partitions)
        available = [each.partition_index for each in self._found.partitions if each.leader_id >= 0]
        if not available:
            raise refusal(LeaderNotAvailableError.code, f"topic {topic}")
        self._sticky = StickyPartition(sorted(available), random or Random())
        self._gathered: dict[int, list[Record]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, record: Record, partition: int | None = None) -> None:
        """Choose the record's partition unless one is given; a full batch is written at once."""
        if partition is None:
            partition = self._partition_for(record)
        elif not 0 <= partition < self._partitions:
            raise UserError(
                f"topic {self.topic} has no partition {partition}; it has {self._partitions}, counted from 0"
            )
        size = _size_of(record)
        if self._sizes.get(partition, 0) + size > _BATCH_BYTES and self._sizes.get(partition):
            self._write(partition)
            if record.key is None and partition == self._sticky.current:
                self._sticky.move_on()
        self._gathered.setdefault(partition, []).append(record)
        self._sizes[partition] = self._sizes.get(partition, 0) + size
        if sum(self._sizes.values()) > _GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write everything that was added; raises what a broker refused."""
        batches = [_Batch(partition, records) for partition, records in self._gathered.items()]
        self._gathered, self._sizes = {}, {}
        self._sticky.move_on()
        self._send_all(batches)

    def _partition_for(self, record: Record) -> int:
        return self._sticky.current if record.key is None else partition_of_key(record.key, self._partitions)

    def _write(self, partition: int) -> None:
        records = self._gathered.pop(partition)
        del self._sizes[partition]
        self._send_all([_Batch(partition, records)])

    def _send_all(self, batches: list[_Batch]) -> None:
        waiting = deque(batches)
        retry = self._new_retry(self._cluster.timeout_s)
        while waiting:
            problem = self._send_round(waiting)
            if problem is not None:
                if not retry.again():
                    raise problem
                self._found = self._cluster.topic(self.topic, create=True)

    def _send_round(self, waiting: deque[_Batch]) -> ProtocolError | None:
        """One batch of each partition, to each leader in one request; what was refused for now goes back in front."""
        by_leader: dict[int, dict[int, _Batch]] = {}
        later: list[_Batch] = []
        chosen: set[int] = set()
        problem: ProtocolError | None = None
        while waiting:
            batch = waiting.popleft()
            if batch.partition in chosen:
                later.append(batch)
                continue
            chosen.add(batch.partition)
            try:
                leader = self._cluster.leader_of(self._found, batch.partition)
                by_leader.setdefault(leader, {})[batch.partition] = batch
            except LeaderNotAvailableError as leaderless:
                problem = leaderless
                later.append(batch)
        again: list[_Batch] = []
        for leader, sent in by_leader.items():
            for answer in self._send(leader, sent):
                batch = sent[answer.index]
                if answer.error_code == NONE:
                    self._note(batch, answer.base_offset)
                elif answer.error_code == MessageTooLargeError.code and len(batch.records) > 1:
                    middle = len(batch.records) // 2
                    again += (
                        _Batch(batch.partition, batch.records[:middle]),
                        _Batch(batch.partition, batch.records[middle:]),
                    )
                else:
                    error = refusal(answer.error_code, f"{self.topic}-{answer.index}", _reason(answer))
                    if answer.error_code not in _SAFE_TO_REPEAT:
                        raise error
                    problem = error
                    again.append(batch)
        waiting.extend(again + later)
        return problem

    def _send(self, leader: int, batches: dict[int, _Batch]) -> list[PartitionProduceResponse]:
        data = [
            PartitionProduceData(index=batch.partition, records=build_batch(batch.records, codec=self._codec))
            for batch in batches.values()
        ]
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=max(1, int(self._cluster.timeout_s * 900)),
            topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
        )
        node = self._cluster.node(leader)
        if self._acks == ACKS_NONE:
            node.send_only(PRODUCE, request, at_most=_NEWEST)
            self.written += sum(len(batch.records) for batch in batches.values())
            return []
        try:
            (answer,) = node.call(PRODUCE, request, ProduceResponse, at_most=_NEWEST).responses
        except NoConnection as problem:
            raise NoConnection(f"{problem}; the last records may or may not have been written") from problem
        return answer.partition_responses

    def _note(self, batch: _Batch, base_offset: int) -> None:
        self.written += len(batch.records)
        last = base_offset + len(batch.records) - 1
        first = self.offsets.get(batch.partition, (base_offset, last))[0]
        self.offsets[batch.partition] = (first, last)


def _size_of(record: Record) -> int:
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 4
    return size


def _reason(answer: PartitionProduceResponse) -> str | None:
    for each in answer.record_errors:
        if each.batch_index_error_message:
            return each.batch_index_error_message
    return answer.error_message
