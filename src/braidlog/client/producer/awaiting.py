"""Deliveries for event loops: one future for all who await a batch, and one call across threads for many of them."""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

from braidlog.client.producer.batch import WHOLE, Batch, Waiter
from braidlog.client.producer.delivery import Bell, Delivery, RecordMetadata


async def outcome_of(delivery: Delivery) -> RecordMetadata:
    while not delivery.done():
        delivery._batch.guard.check()
        arrival = _arrival_of(delivery._batch, asyncio.get_running_loop())
        if arrival is None:
            continue
        try:
            await arrival
        except asyncio.CancelledError:
            # The future is shared: whoever cancels one task must not cancel the others that await the same batch.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
    return delivery.result(0)


def _arrival_of(batch: Batch, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
    """Done once the batch is; none when it is by now."""
    arrival: Arrival | None = batch.arrival
    if arrival is None or arrival.loop is not loop or arrival.future.cancelled():
        arrival = Arrival(loop)
        if not batch.watch(arrival):
            return None
        batch.arrival = arrival
        batch.guard.let_engine_read()
    return arrival.future


async def rung(bell: Bell) -> None:
    """Wait for a bell without keeping the loop."""
    arrival = Arrival(asyncio.get_running_loop())
    bell.forward = arrival
    if not bell.is_rung():
        await arrival.future


class Arrival(Waiter):
    """The end of a batch, or of all the batches that it was split into, as a future of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(WHOLE)
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self._remaining = 1

    def settle(self) -> None:
        self._remaining -= 1
        if self._remaining == 0:
            _mailbox_of(self.loop).put(self.future)

    def spread(self, parts: int) -> None:
        self._remaining += parts - 1


class Mailbox:
    """The futures of one loop that are due: the loop is called once, however many come before it looks."""

    def __init__(self) -> None:
        self._due: deque[asyncio.Future[None]] = deque()
        self._called = False

    def put(self, future: asyncio.Future[None]) -> None:
        self._due.append(future)
        if not self._called:
            self._called = True
            try:
                future.get_loop().call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop was closed: nobody waits there any more.
                self._due.clear()

    def _deliver(self) -> None:
        # Before the look: who puts one in after that calls again.
        self._called = False
        while self._due:
            future = self._due.popleft()
            if not future.done():
                future.set_result(None)


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()


def _mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    """One a loop, as long as the loop lives."""
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox()
    return found
