"""Deliveries for event loops: a future on the caller's own loop, and one call across threads for many of them."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from braidlog.client.producer.batch import Waiter
from braidlog.client.producer.delivery import Bell, Delivery, RecordMetadata


async def outcome_of(delivery: Delivery) -> RecordMetadata:
    if not delivery.done():
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if delivery.batch.watch(LoopWaiter(delivery.index, mailbox_of(loop), future)):
            await future
    return delivery.result(0)


async def rung(bell: Bell) -> None:
    """Wait for a bell without keeping the loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    bell.forward = LoopWaiter(0, mailbox_of(loop), future)
    if bell.is_rung():
        return
    await future


class Mailbox:
    """The futures of one loop that are due: the loop is called once, however many come before it looks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[asyncio.Future[None]] = []

    def put(self, future: asyncio.Future[None]) -> None:
        self._due.append(future)
        if len(self._due) == 1:
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop was closed: nobody waits there any more.
                self._due.clear()

    def _deliver(self) -> None:
        # Swapped before it is read: who puts one in after that calls again.
        due, self._due = self._due, []
        for future in due:
            if not future.done():
                future.set_result(None)


class LoopWaiter(Waiter):
    def __init__(self, index: int, mailbox: Mailbox, future: asyncio.Future[None]) -> None:
        super().__init__(index)
        self._mailbox = mailbox
        self._future = future

    def settle(self) -> None:
        self._mailbox.put(self._future)


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()


def mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    """One a loop, as long as somebody waits."""
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox(loop)
    return found
