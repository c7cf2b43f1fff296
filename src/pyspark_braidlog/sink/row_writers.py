"""A task's rows to their topics: at least once, or exactly once.

Exactly once, for each task and batch:

    take over the transactional id   ends what an earlier attempt left open, fences that attempt if it still lives
    read the marker                  no other attempt can change it from now on without fencing this one
    same batch: skip                 read all rows all the same, and compare them with what was written
    else: write                      begin with the first row; rows, then the marker; see that no row is missing; commit

docs/adr/spark-sink.md has the argument why that is exactly once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from braidlog import TopicPartition
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.fingerprint import Fingerprint
from pyspark_braidlog.sink.markers import FoundMarker, Marker, Step, check_same, newest, next_step
from pyspark_braidlog.sink.task_identity import TaskIdentity

# The marker's place in a topic that has one partition at least.
_MARKED_PARTITION: Final = 0
# Batches of Spark's that may be on their way; the producer's buffer.memory holds less in most cases.
_UNDER_WAY: Final = 64


class RowDelivery(Protocol):
    """What `send_arrow` returns."""

    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> object: ...


class RowProducer(Protocol):
    """What is used of a Producer."""

    @property
    def send_arrow(self) -> Callable[..., RowDelivery]: ...
    def flush(self, timeout: float | None = None) -> None: ...


class TransactionalProducer(RowProducer, Protocol):
    def init_transactions(self, timeout: float | None = None) -> None: ...
    def begin_transaction(self) -> None: ...
    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: str, timeout: float | None = None
    ) -> None: ...
    def commit_transaction(self, timeout: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task."""

    rows: Fingerprint
    # An earlier attempt had written them.
    skipped: bool = False
    # This task wrote the batch before in the same run of the query, so that this batch cannot be one of an earlier run.
    continues_run: bool = False


class RowSender:
    """Hands batches to a producer, and looks after what became of those before; memory is bounded."""

    def __init__(self, producer: RowProducer, columns: Columns) -> None:
        self._producer = producer
        self._columns = columns
        self._under_way: deque[RowDelivery] = deque()

    def send(self, batch: pa.RecordBatch) -> None:
        for piece, arguments in self._columns.pieces(batch):
            self._under_way.append(self._producer.send_arrow(piece, **arguments))
        while self._under_way and (self._under_way[0].done() or len(self._under_way) > _UNDER_WAY):
            # Raises for the first row that failed, so that a cluster which takes none is not sent all of them.
            self._under_way.popleft().result()

    def finish(self) -> None:
        """Wait for every row; raises if one failed."""
        self._producer.flush()
        while self._under_way:
            self._under_way.popleft().result()


def write_at_least_once(producer: RowProducer, columns: Columns, batches: Iterator[pa.RecordBatch]) -> int:
    """How many rows were written."""
    sending = RowSender(producer, columns)
    rows = 0
    for batch in batches:
        if batch.num_rows:
            sending.send(batch)
            rows += batch.num_rows
    sending.finish()
    return rows


class ExactlyOnceWriter:
    """One attempt of one task."""

    def __init__(
        self,
        producer: TransactionalProducer,
        read_offsets: Callable[[str], Mapping[TopicPartition, OffsetAndMetadata]],
        check_complete: Callable[[], None],
        task: TaskIdentity,
        name: str,
        columns: Columns,
        *,
        keep_recomputed: bool = False,
    ) -> None:
        self._producer = producer
        self._read_offsets = read_offsets
        self._check_complete = check_complete
        self._task = task
        self._name = name
        self._columns = columns
        self._keep_recomputed = keep_recomputed

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        self._producer.init_transactions()
        last = newest(self._name, self._read_offsets(self._name), self._columns.topic)
        marker = None if last is None else last.marker
        step = next_step(self._task, marker)
        continues = marker is not None and marker.run == self._task.run != "" and marker.batch < self._task.batch
        if step is Step.WRITE:
            return TaskResult(self._write(batches, last), continues_run=continues)
        assert marker is not None
        rows = self._drained(batches)
        self._check_complete()
        if not self._keep_recomputed:
            check_same(self._task, marker, rows)
        return TaskResult(rows, skipped=True)

    def _drained(self, batches: Iterator[pa.RecordBatch]) -> Fingerprint:
        rows = Fingerprint()
        for batch in batches:
            rows = rows.with_rows(self._columns.keys(batch), batch.column("value"))
        return rows

    def _write(self, batches: Iterator[pa.RecordBatch], last: FoundMarker | None) -> Fingerprint:
        sending = RowSender(self._producer, self._columns)
        rows = Fingerprint()
        place = None if last is None else last.place
        if self._columns.topic is not None:
            place = TopicPartition(self._columns.topic, _MARKED_PARTITION)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if rows.rows == 0:
                # Not before: a slow source would use up the time that a transaction may take.
                self._producer.begin_transaction()
                place = place or TopicPartition(self._columns.first_topic(batch), _MARKED_PARTITION)
            rows = rows.with_rows(self._columns.keys(batch), batch.column("value"))
            sending.send(batch)
        sending.finish()
        self._check_complete()
        if place is not None:
            self._commit(place, rows)
        return rows

    def _commit(self, place: TopicPartition, rows: Fingerprint) -> None:
        """Without rows too: a task that had none has to have none again."""
        if rows.rows == 0:
            self._producer.begin_transaction()
        marker = Marker(self._task.batch, rows, self._task.run)
        self._producer.send_offsets_to_transaction({place: marker.committed()}, self._name)
        self._producer.commit_transaction()
