"""What becomes of a table that was sent: offsets by partition, and what failed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from braidlog.client.errors import ClientError
from braidlog.client.producer.accumulator.producer_batch import WHOLE, ProducerBatch, Waiter
from braidlog.client.producer.delivery import Delivery, latch_for
from braidlog.core.types import TopicPartition

log = logging.getLogger("braidlog.client")

# Batches that are looked after one by one before those that are done are booked.
_SWEEP: Final = 1024


@dataclass(slots=True)
class PartitionOutcome:
    """The result for the rows that went to one partition."""

    written: int = 0
    failed: int = 0
    # (first, last) offsets, in order; several where other producers' records lie between. Empty with acks=0.
    ranges: list[tuple[int, int]] = field(default_factory=list)
    # Why the first that failed did.
    error: Exception | None = None

    def add_batch(self, batch: ProducerBatch) -> None:
        """Take in a batch that is done, with whatever it was split into."""
        if batch.parts is not None:
            for part in batch.parts:
                self.add_batch(part.batch)
            return
        count = int(batch.count)
        if batch.error is not None:
            self.failed += count
            self.error = self.error or batch.error
            return
        self.written += count
        first = int(batch.base_offset)
        if first < 0:
            return
        if self.ranges and self.ranges[-1][1] + 1 == first:
            self.ranges[-1] = (self.ranges[-1][0], first + count - 1)
        else:
            self.ranges.append((first, first + count - 1))


@dataclass(frozen=True, slots=True)
class TableOutcome:
    partitions: dict[TopicPartition, PartitionOutcome]

    @property
    def written(self) -> int:
        return sum(each.written for each in self.partitions.values())

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.partitions.values())

    @property
    def error(self) -> Exception | None:
        return next((each.error for each in self.partitions.values() if each.error is not None), None)


class TableDeliveryError(ClientError):
    """Rows of a table were not written; `outcome` says which partitions have how many."""

    def __init__(self, outcome: TableOutcome) -> None:
        failed = [str(partition) for partition, each in outcome.partitions.items() if each.failed]
        super().__init__(
            f"{outcome.failed} of {outcome.failed + outcome.written} rows were not written, those for "
            f"{', '.join(failed[:5])}{' …' if len(failed) > 5 else ''}: {outcome.error}"
        )
        self.outcome = outcome

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.outcome,)


class TableDelivery:
    """One for all rows of a table: `result()` waits for every one, `await` does in an event loop."""

    def __init__(self) -> None:
        self._pending: deque[tuple[TopicPartition, ProducerBatch]] = deque()
        self._outcomes: dict[TopicPartition, PartitionOutcome] = {}
        # Callbacks on the engine's thread ask for the outcome while the program waits for it.
        self._outcomes_lock = Lock()

    def add(self, partition: TopicPartition, delivery: Delivery) -> None:
        self._pending.append((partition, delivery._batch))
        if len(self._pending) >= _SWEEP:
            self._collect_done()

    def _collect_done(self) -> None:
        """Let go of the batches that are done, as far as they are in order."""
        pending = self._pending
        with self._outcomes_lock:
            while pending and pending[0][1].all_done():
                partition, batch = pending.popleft()
                self._outcomes.setdefault(partition, PartitionOutcome()).add_batch(batch)

    def _unfinished(self) -> list[ProducerBatch]:
        self._collect_done()
        with self._outcomes_lock:
            return [batch for _, batch in self._pending]

    def done(self) -> bool:
        return all(batch.all_done() for batch in self._unfinished())

    def result(self, timeout: float | None = None) -> TableOutcome:
        """Wait until every row is written; TableDeliveryError when some failed, TimeoutError after `timeout` s."""
        outcome = self.outcome(timeout)
        if outcome.failed:
            raise TableDeliveryError(outcome) from outcome.error
        return outcome

    def exception(self, timeout: float | None = None) -> TableDeliveryError | None:
        outcome = self.outcome(timeout)
        return TableDeliveryError(outcome) if outcome.failed else None

    def outcome(self, timeout: float | None = None) -> TableOutcome:
        """Wait until every row is written or failed."""
        deadline: float | None = None
        while batches := self._unfinished():
            guard = batches[0].guard
            left: float | None = None
            if timeout is not None:
                deadline = guard.clock.monotonic() + timeout if deadline is None else deadline
                left = deadline - guard.clock.monotonic()
            guard.lock.acquire()
            try:
                latch = latch_for(batches)
            finally:
                guard.lock.release()
            if latch is not None and not guard.wait_for(latch.lock, left):
                raise TimeoutError(f"rows of the table were not acknowledged within {timeout:g} s; they still may be")
        return TableOutcome(dict(self._outcomes))

    def add_done_callback(self, callback: Callable[[TableDelivery], object]) -> None:
        """Call with this delivery once every row is done, on the engine's thread; at once if that is so already."""
        batches = self._unfinished()
        # One more, so that nothing is called before all are watched.
        countdown = _Countdown(len(batches) + 1, lambda: callback(self))
        for batch in batches:
            if not batch.watch(countdown):
                countdown.settle()
        countdown.settle()

    def __await__(self) -> Generator[Any, None, TableOutcome]:
        return self._awaited().__await__()

    async def _awaited(self) -> TableOutcome:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def tell(_: TableDelivery) -> None:
            loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(None))

        self.add_done_callback(tell)
        await done
        return self.result(0.0)


class _Countdown(Waiter):
    """Calls once, when so many batches are done."""

    def __init__(self, batches: int, call: Callable[[], object]) -> None:
        super().__init__(WHOLE)
        self._remaining = batches
        self._call = call
        # The thread that sets it up and the engine's both count.
        self._lock = Lock()

    def settle(self) -> None:
        with self._lock:
            self._remaining -= 1
            if self._remaining != 0:
                return
        try:
            self._call()
        except Exception:
            log.exception("a delivery callback failed")

    def spread(self, parts: int) -> None:
        with self._lock:
            self._remaining += parts - 1
