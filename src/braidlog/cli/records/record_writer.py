"""The producer behind `braidlog produce`: counts what was written, stops at the first record that was not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from braidlog.cli.interrupts import interrupts_wait
from braidlog.cli.records.line_batches import LineBatch, LineBatches
from braidlog.cli.records.progress import RecordProgress
from braidlog.client.producer.accumulator.producer_batch import ProducerBatch
from braidlog.client.producer.producer import Producer
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.records.columns_partitioning import StickyRowPartitioner
from braidlog.wire.records.reading import Record

# Of records that were read before the interruption.
_GRACE_S: Final = 10.0
_BATCH_BYTES: Final = 256 * 1024


class RecordWriter:
    """`offsets` has by partition the first and the last that were written (none with acks=0)."""

    def __init__(self, topic: str, partitions: int, settings: Mapping[str, Any], progress: RecordProgress) -> None:
        self.written = 0
        self.offsets: dict[int, tuple[int, int]] = {}
        self._topic = topic
        self._partitions = partitions
        self._progress = progress
        # Sent and not looked at since, in order, with the bytes of their keys and values.
        self._pending: dict[ProducerBatch, int] = {}
        self._producer = Producer(settings)
        self._has_batch_size = "batch.size" in settings
        self._is_transactional = bool(settings.get("transactional.id"))
        self._is_committed = False

    def __enter__(self) -> Self:
        try:
            if self._is_transactional:
                self._producer.init_transactions()
                self._producer.begin_transaction()
        except BaseException:
            self._producer.close(0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What is worth sending was sent by `finish`; after a failure the rest is not waited for.
        self._producer.close(0 if not self._is_transactional else _GRACE_S)

    @property
    def linger_s(self) -> float:
        return self._producer._limits.linger_s

    def batches_of_lines(self, **options: Any) -> LineBatches:
        """What makes batches for `send_batch`; `options` are those of LineBatches."""
        limits = self._producer._limits
        # Many lines are there at once, so that batches need not be as small as those that wait for single records.
        batch_size = int(limits.batch_size) if self._has_batch_size else max(int(limits.batch_size), _BATCH_BYTES)
        batch_size = min(batch_size, int(limits.memory), int(limits.max_request))
        partitions = self._producer.partitions_for(self._topic)
        available = [each.index for each in partitions if each.leader >= 0] or [each.index for each in partitions]
        # Elsewhere each time, so that many small inputs do not all fill the first partition.
        turns = StickyRowPartitioner(available, batch_size, time.monotonic_ns() // 1000)
        return LineBatches(len(partitions), turns, batch_size, **options)

    def check_partition(self, partition: int | None) -> None:
        if partition is not None and partition >= self._partitions:
            raise UserError(
                f"topic {self._topic} has no partition {partition}; it has {self._partitions}, counted from 0"
            )

    def send(self, record: Record, partition: int | None) -> None:
        self.check_partition(partition)
        delivery = self._producer.send(
            self._topic,
            record.value,
            record.key,
            partition=partition,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            headers=record.headers or None,
        )
        self._add(delivery._batch, len(record.key or b"") + len(record.value or b""))

    def send_batch(self, lines: LineBatch) -> None:
        delivery = self._producer._append_batch(
            self._topic, lines.partition, lines.body, lines.count, lines.timestamp, lines.timestamp
        )
        self._add(delivery._batch, lines.payload)

    def _add(self, batch: ProducerBatch, payload: int) -> None:
        self._pending[batch] = self._pending.get(batch, 0) + payload

    def look(self) -> None:
        """As `_look`, and show it to who watches."""
        self._look()
        self._progress.show()

    def _look(self) -> None:
        """Count what was written meanwhile; raises what the first batch failed with that was not."""
        pending = self._pending
        while pending:
            batch = next(iter(pending))
            if not batch.all_done():
                break
            payload = pending.pop(batch)
            before = self.written
            error = self._book(batch)
            written = self.written - before
            # Of a batch of which a part was refused about as much was written as its records say.
            self._progress.add(written, payload * written // max(int(batch.count), 1))
            if error is not None:
                raise error

    def _book(self, batch: ProducerBatch) -> Exception | None:
        """Take in a batch that is done, with whatever it was split into; the first thing that went wrong."""
        if batch.parts is not None:
            errors = [self._book(part.batch) for part in batch.parts]
            return next((error for error in errors if error is not None), None)
        if batch.error is not None:
            return batch.error_of(min(batch.record_errors)) if batch.record_errors else batch.error
        count, first = int(batch.count), int(batch.base_offset)
        self.written += count
        if first >= 0:
            low, high = self.offsets.get(batch.partition, (first, first))
            self.offsets[batch.partition] = (min(low, first), max(high, first + count - 1))
        return None

    def finish(self, *, give_up: bool = False) -> None:
        """Wait for what was sent; raises the first failure. To give up is to wait a little, or to abort."""
        producer = self._producer
        if self._is_committed:
            return
        if give_up and self._is_transactional:
            producer.abort_transaction()
            self.written = self._progress.records = self._progress.bytes = 0
            return
        try:
            producer.flush(_GRACE_S if give_up else None)
        except TimeoutError:
            # Interrupted: what is known by now is what can be reported.
            self._look()
            return
        self._look()
        if self._is_transactional:
            # It would be unknown what became of a commit that is left in its midst.
            with interrupts_wait():
                producer.commit_transaction()
                self._is_committed = True

    def told_how_far(self, problem: Exception) -> Exception:
        """The same problem, with what a second try would write twice."""
        with suppress(Exception):
            self._producer.flush(_GRACE_S)
        self._count_the_rest()
        if not self.written:
            return problem
        text = problem.message if isinstance(problem, ProtocolError) else str(problem)
        what = "none of it was committed" if self._is_transactional else f"{self.written} records were written"
        explanation = f"{text or 'the broker refused'}; {what}"
        return type(problem)(explanation) if isinstance(problem, ProtocolError) else UserError(explanation)

    def _count_the_rest(self) -> None:
        """Records behind the one that failed, some of which were written."""
        while self._pending:
            try:
                self._look()
            except Exception:
                # Another one that failed with the first.
                continue
            return
