"""Tables to topics: rows become batches in the caller's thread, and go the way of every other record from there.

    table ─▶ pieces ─▶ columns ─▶ rows by topic and partition ─▶ record bodies ─▶ accumulator

Memory, order, retries, idempotence and transactions are the producer's; a body is a batch that is full already.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.client.arrow.encoding import bytes_column, header_columns, partition_numbers, timestamps, topic_names
from braidlog.client.arrow.rows import MOST_PIECE_BYTES, PIECE_BYTES, ColumnNames, batches_of, pieces_of, without_views
from braidlog.client.arrow.table_delivery import TableDelivery
from braidlog.client.cluster_view import PartitionView
from braidlog.client.errors import RecordTooLargeError
from braidlog.client.malloc_tuning import keep_large_buffers
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidPartitionsError, InvalidRecordError, MessageTooLargeError
from braidlog.core.types import TopicPartition
from braidlog.wire.records.columns_building import BuiltBody, BytesColumn, RecordSource, build_bodies
from braidlog.wire.records.columns_partitioning import (
    StickyRowPartitioner,
    partition_rows_by_key,
    partition_rows_by_number,
)

if TYPE_CHECKING:
    from braidlog.client.producer.producer import Producer

# A table is there as a whole, so that its batches need not be as small as those that wait for single records.
BATCH_BYTES: Final = 256 * 1024

Keyless = Literal["sticky", "round-robin"]


def send_arrow(
    producer: Producer,
    data: Any,
    topic: str | None = None,
    *,
    key: str | None = "key",
    value: str | None = "value",
    headers: str | None = "headers",
    timestamp: str | None = None,
    partition_by: str | int | None = None,
    keyless: Keyless = "sticky",
    batch_size: int | None = None,
) -> TableDelivery:
    """Send every row as a record; returns when the last one is handed over, before it is acknowledged.

    `key`, `value`, `headers` and `timestamp` are names of columns. Without `topic` each row's is in the column "topic".
    `partition_by` is a partition for all rows, or a column: of integers, which are the partitions, or of bytes or
    text, which are hashed in place of the key. Waits for room in `buffer.memory` as `send` does, also in a thread that
    runs an event loop (a notebook's), which it keeps.
    """
    keep_large_buffers()
    names = ColumnNames(
        topic=None if topic is not None else "topic",
        key=key,
        value=value,
        headers=headers,
        timestamp=timestamp,
        partition=partition_by if isinstance(partition_by, str) else None,
    )
    sending = _TableSender(producer, topic, names, keyless, batch_size)
    if isinstance(partition_by, int):
        sending.partition = partition_by
    try:
        for batch in batches_of(data):
            for piece in pieces_of(batch, sending.piece_bytes()):
                sending.send(piece)
    except Exception as problem:
        if sending.handed_over:
            problem.add_note(f"{sending.handed_over} rows of the table were handed over before, and are being sent")
        raise
    return sending.delivery


class _TableSender:
    """One table on its way into the accumulator."""

    def __init__(
        self, producer: Producer, topic: str | None, names: ColumnNames, keyless: Keyless, batch_size: int | None
    ) -> None:
        limits = producer._limits
        self.delivery = TableDelivery()
        self.partition: int | None = None
        self.handed_over = 0
        self._producer = producer
        self._topic = topic
        self._names = names
        self._schema: pa.Schema | None = None
        self._largest = min(int(limits.max_request), int(limits.memory))
        wanted = max(int(limits.batch_size), BATCH_BYTES) if batch_size is None else batch_size
        self._batch_size = min(wanted, self._largest)
        if keyless not in ("sticky", "round-robin"):
            raise UserError(f"keyless is 'sticky' or 'round-robin', not {keyless!r}")
        self._turn_bytes = self._batch_size if keyless == "sticky" else 0
        self._turns: dict[str, tuple[list[int], StickyRowPartitioner]] = {}
        self._rows = 0

    def piece_bytes(self) -> int:
        """Enough rows at a time to fill a batch of each partition."""
        if self._topic is None or self.partition is not None:
            return PIECE_BYTES
        wanted = self._batch_size * len(self._producer.partitions_for(self._topic))
        return min(max(wanted, PIECE_BYTES), MOST_PIECE_BYTES)

    def send(self, piece: pa.RecordBatch) -> None:
        if piece.schema is not self._schema:
            self._schema = piece.schema
            self._names = self._names.found_in(piece.schema)
        try:
            # All of it before any is handed over: a row that cannot be sent keeps its whole piece back.
            built = self._by_topic(piece) if self._topic is None else self._built(self._topic, piece)
        except MessageTooLargeError as problem:
            raise RecordTooLargeError(f"{problem.message}, counted from row {self._rows} of the table") from problem
        except (InvalidRecordError, InvalidPartitionsError) as problem:
            raise UserError(f"{problem.message}, counted from row {self._rows} of the table") from problem
        self._rows += piece.num_rows
        for where, body in built:
            delivery = self._producer._append_batch(
                where.topic, where.partition, body.body, body.count, body.base_timestamp, body.max_timestamp
            )
            self.delivery.add(where, delivery)
            self.handed_over += body.count

    def _by_topic(self, piece: pa.RecordBatch) -> list[tuple[TopicPartition, BuiltBody]]:
        name = self._names.topic
        assert name is not None
        coded = topic_names(piece.column(name), name)
        topics = coded.dictionary.to_pylist()
        if len(topics) == 1:
            return self._built(topics[0], piece)
        piece = without_views(piece, [each for each in self._names.parts().values() if each is not None])
        built: list[tuple[TopicPartition, BuiltBody]] = []
        for index, topic in enumerate(topics):
            built += self._built(topic, piece.filter(pc.equal(coded.indices, index)))
        return built

    def _built(self, topic: str, piece: pa.RecordBatch) -> list[tuple[TopicPartition, BuiltBody]]:
        source = self._source(piece)
        partitions = self._producer.partitions_for(topic)
        return [
            (TopicPartition(topic, partition), body)
            for partition, order in self._spread(topic, partitions, piece, source)
            for body in build_bodies(source, order, self._batch_size, self._largest)
        ]

    def _source(self, piece: pa.RecordBatch) -> RecordSource:
        names = self._names
        now_ms = time.time_ns() // 1_000_000
        return RecordSource(
            piece.num_rows,
            keys=None if names.key is None else bytes_column(piece.column(names.key), names.key),
            values=None if names.value is None else bytes_column(piece.column(names.value), names.value),
            headers=None if names.headers is None else header_columns(piece.column(names.headers), names.headers),
            timestamps=None
            if names.timestamp is None
            else timestamps(piece.column(names.timestamp), names.timestamp, now_ms),
            timestamp=now_ms,
        )

    def _spread(
        self, topic: str, partitions: Sequence[PartitionView], piece: pa.RecordBatch, source: RecordSource
    ) -> list[tuple[int, bytes | None]]:
        """(partition, its rows); rows None: all of them, in order."""
        count = len(partitions)
        if self.partition is not None:
            if not 0 <= self.partition < count:
                raise UserError(f"{topic} has no partition {self.partition}; it has {count}")
            return [(self.partition, None)]
        hashed: BytesColumn | None = source.keys
        name = self._names.partition
        if name is not None:
            column = piece.column(name)
            if pa.types.is_integer(column.type):
                numbers = partition_numbers(column, name)
                return _filled(partition_rows_by_number(numbers, piece.num_rows, count))
            hashed = bytes_column(column, name)
        if count == 1:
            return [(0, None)]
        turns = self._turns_of(topic, partitions)
        return _filled(partition_rows_by_key(hashed, source.values, piece.num_rows, count, turns))

    def _turns_of(self, topic: str, partitions: Sequence[PartitionView]) -> StickyRowPartitioner:
        """Rows without a key go to partitions that have a leader, as single records do."""
        available = [each.index for each in partitions if each.leader >= 0] or [each.index for each in partitions]
        known = self._turns.get(topic)
        if known is None or known[0] != available:
            # Elsewhere each time, so that many small tables do not all fill the first partition.
            known = (available, StickyRowPartitioner(available, self._turn_bytes, time.monotonic_ns() // 1000))
            self._turns[topic] = known
        return known[1]


def _filled(spread: list[bytes]) -> list[tuple[int, bytes | None]]:
    return [(partition, rows) for partition, rows in enumerate(spread) if rows]
