"""The producer behind `braidlog produce`: counts what was written, stops at the first record that was not."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from braidlog.cli.pace import Pace
from braidlog.client.producer.delivery import RecordMetadata
from braidlog.client.producer.producer import Producer
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.records.reading import Record

# Of records that were read before the interruption.
_GRACE_S: Final = 10.0
_SHOW_EVERY: Final = 1000


class RecordWriter:
    """`offsets` has by partition the first and the last that were written (none with acks=0)."""

    def __init__(self, topic: str, partitions: int, settings: Mapping[str, Any], pace: Pace) -> None:
        self.written = 0
        self.offsets: dict[int, tuple[int, int]] = {}
        self._topic = topic
        self._partitions = partitions
        self._pace = pace
        self._failure: Exception | None = None
        self._sent = 0
        self._producer = Producer(settings)
        self._is_transactional = bool(settings.get("transactional.id"))

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
        # What is worth sending was sent by `finish`; after a failure nobody waits for the rest.
        self._producer.close(0 if not self._is_transactional else _GRACE_S)

    def send(self, record: Record, partition: int | None) -> None:
        if self._failure is not None:
            raise self._failure
        if partition is not None and partition >= self._partitions:
            raise UserError(
                f"topic {self._topic} has no partition {partition}; it has {self._partitions}, counted from 0"
            )
        self._producer.send(
            self._topic,
            record.value,
            record.key,
            partition=partition,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            headers=record.headers,
            on_delivery=self._delivered,
        )
        self._sent += 1
        if self._sent % _SHOW_EVERY == 0:
            self._pace.show()

    def _delivered(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """On the producer's own thread."""
        if metadata is None:
            if self._failure is None:
                self._failure = error
            return
        self.written += 1
        self._pace.add(1, max(metadata.serialized_key_size, 0) + max(metadata.serialized_value_size, 0))
        if metadata.offset >= 0:
            first, last = self.offsets.get(metadata.partition, (metadata.offset, metadata.offset))
            self.offsets[metadata.partition] = (min(first, metadata.offset), max(last, metadata.offset))

    def finish(self, *, give_up: bool = False) -> None:
        """Wait for what was sent; raises the first failure. To give up is to wait a little, or to abort."""
        producer = self._producer
        if give_up and self._is_transactional:
            producer.abort_transaction()
            self.written = 0
            return
        try:
            producer.flush(_GRACE_S if give_up else None)
        except TimeoutError:
            return
        if self._failure is not None:
            raise self._failure
        if self._is_transactional:
            producer.commit_transaction()

    def told_how_far(self, problem: Exception) -> Exception:
        """The same problem, with what a second try would write twice."""
        if not self.written:
            return problem
        text = problem.message if isinstance(problem, ProtocolError) else str(problem)
        what = "none of it was committed" if self._is_transactional else f"{self.written} records were written"
        told = f"{text or 'the broker refused'}; {what}"
        return type(problem)(told) if isinstance(problem, ProtocolError) else UserError(told)
