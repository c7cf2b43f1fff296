"""The producer behind `braidlog produce`: counts what was written, stops at the first record that was not."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from braidlog.cli.pace import Pace
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.producer import Producer
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.records.reading import Record

# Of records that were read before the interruption.
_GRACE_S: Final = 10.0
# What became of records is looked at this often: by count for who is quick, by time for who types.
_LOOK_EVERY: Final = 1000
_LOOK_EVERY_S: Final = 0.1


class RecordWriter:
    """`offsets` has by partition the first and the last that were written (none with acks=0)."""

    def __init__(self, topic: str, partitions: int, settings: Mapping[str, Any], pace: Pace) -> None:
        self.written = 0
        self.offsets: dict[int, tuple[int, int]] = {}
        self._topic = topic
        self._partitions = partitions
        self._pace = pace
        # Sent and not looked at since, in order.
        self._pending: deque[Delivery] = deque()
        self._looked = time.monotonic()
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
        if partition is not None and partition >= self._partitions:
            raise UserError(
                f"topic {self._topic} has no partition {partition}; it has {self._partitions}, counted from 0"
            )
        self._pending.append(
            self._producer.send(
                self._topic,
                record.value,
                record.key,
                partition=partition,
                timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
                headers=record.headers or None,
            )
        )
        if len(self._pending) % _LOOK_EVERY == 0 or time.monotonic() - self._looked > _LOOK_EVERY_S:
            self._look()
            self._pace.show()

    def _look(self) -> None:
        """Count what was written meanwhile; raises what the first record failed with that was not."""
        self._looked = time.monotonic()
        pending, offsets = self._pending, self.offsets
        written = size = 0
        try:
            while pending and pending[0].done():
                metadata, error = pending.popleft().outcome()
                if metadata is None:
                    assert error is not None
                    raise error
                written += 1
                size += max(metadata.serialized_key_size, 0) + max(metadata.serialized_value_size, 0)
                offset = metadata.offset
                if offset >= 0:
                    first, last = offsets.get(metadata.partition, (offset, offset))
                    offsets[metadata.partition] = (min(first, offset), max(last, offset))
        finally:
            self.written += written
            self._pace.add(written, size)

    def finish(self, *, give_up: bool = False) -> None:
        """Wait for what was sent; raises the first failure. To give up is to wait a little, or to abort."""
        producer = self._producer
        if give_up and self._is_transactional:
            producer.abort_transaction()
            self.written = self._pace.records = self._pace.bytes = 0
            return
        try:
            producer.flush(_GRACE_S if give_up else None)
        except TimeoutError:
            # Interrupted: what is known by now is what can be told.
            self._look()
            return
        self._look()
        if self._is_transactional:
            producer.commit_transaction()

    def told_how_far(self, problem: Exception) -> Exception:
        """The same problem, with what a second try would write twice."""
        with suppress(Exception):
            self._producer.flush(_GRACE_S)
        self._count_the_rest()
        if not self.written:
            return problem
        text = problem.message if isinstance(problem, ProtocolError) else str(problem)
        what = "none of it was committed" if self._is_transactional else f"{self.written} records were written"
        told = f"{text or 'the broker refused'}; {what}"
        return type(problem)(told) if isinstance(problem, ProtocolError) else UserError(told)

    def _count_the_rest(self) -> None:
        """Records behind the one that failed, some of which were written."""
        while self._pending:
            try:
                self._look()
            except Exception:
                # Another one that failed with the first.
                continue
            return
