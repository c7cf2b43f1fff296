"""Deliveries for event loops: one future for all tasks that await a batch, one call across threads for many of them."""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

from braidlog.client.producer.accumulator.producer_batch import WHOLE, ProducerBatch, Waiter
from braidlog.client.producer.delivery import CompletionLatch, Delivery, RecordMetadata


async def delivery_result(delivery: Delivery) -> RecordMetadata:
    while not delivery.done():
        delivery._batch.guard.check()
        batch_future = _batch_future_of(delivery._batch, asyncio.get_running_loop())
        if batch_future is None:
            continue
        try:
            await batch_future
        except asyncio.CancelledError:
            # The future is shared: to cancel one task must not cancel the others that await the same batch.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
    return delivery.result(0)


def _batch_future_of(batch: ProducerBatch, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
    """Done once the batch is; none when it is by now."""
    batch_future: BatchFuture | None = batch.batch_future
    if batch_future is None or batch_future.loop is not loop or batch_future.future.cancelled():
        batch_future = BatchFuture(loop)
        if not batch.watch(batch_future):
            return None
        batch.batch_future = batch_future
        batch.guard.let_engine_read()
    return batch_future.future


async def latch_released(latch: CompletionLatch) -> None:
    """Wait for a latch without keeping the loop."""
    batch_future = BatchFuture(asyncio.get_running_loop())
    latch.forward = batch_future
    if not latch.is_released():
        await batch_future.future


class BatchFuture(Waiter):
    """The end of a batch, or of all the batches that it was split into, as a future of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(WHOLE)
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self._remaining = 1

    def settle(self) -> None:
        self._remaining -= 1
        if self._remaining == 0:
            _notifier_of(self.loop).put(self.future)

    def spread(self, parts: int) -> None:
        self._remaining += parts - 1


class FutureNotifier:
    """The futures of one loop that are due: the loop is called once, however many come before it looks."""

    def __init__(self) -> None:
        self._due: deque[asyncio.Future[None]] = deque()
        self._wakeup_pending = False

    def put(self, future: asyncio.Future[None]) -> None:
        self._due.append(future)
        if not self._wakeup_pending:
            self._wakeup_pending = True
            try:
                future.get_loop().call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop was closed: no task waits there any more.
                self._due.clear()

    def _deliver(self) -> None:
        # Before the look: who puts one in after that calls again.
        self._wakeup_pending = False
        while self._due:
            future = self._due.popleft()
            if not future.done():
                future.set_result(None)


_notifiers: WeakKeyDictionary[asyncio.AbstractEventLoop, FutureNotifier] = WeakKeyDictionary()


def _notifier_of(loop: asyncio.AbstractEventLoop) -> FutureNotifier:
    """One a loop, as long as the loop lives."""
    found = _notifiers.get(loop)
    if found is None:
        found = _notifiers[loop] = FutureNotifier()
    return found
