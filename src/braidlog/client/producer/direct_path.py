"""Lets a program's thread do the engine's work while the engine sleeps: one record sent, its answer read.

    send()      writes the request itself, if there is nothing else to do
    result()    waits for the socket itself, takes the answer, and returns

Without it such a record goes through two threads four times, and each change costs more than all the rest. The engine's
thread is held meanwhile (`Engine.busy`), but not while anybody waits. Whatever is not quite simple (a refusal, a lost
connection, a callback of the program's, an answer that takes long) is left to the engine, which finds everything as if
it had done the work itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from braidlog.client.network.connection import Connection
from braidlog.client.network.engine import Engine
from braidlog.client.producer.batch import Waiter, tell
from braidlog.client.producer.delivery import Bell

# How long a thread reads by itself. An answer that takes longer gains nothing by it, and a thread that waits for the
# socket does not hear what else ends its wait: a close, a delivery that ran out of time.
READ_S: Final = 0.02


# While the engine is at work its thread cannot be held; mostly it is soon done.
_HOLD_S: Final = 0.001


class DirectPath:
    def __init__(
        self, engine: Engine, send_one: Callable[[], Connection | None], is_last: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._send_one = send_one
        # Whether all that is under way is one request: else a thread would read here, and miss what comes elsewhere.
        self._is_last = is_last
        # The connection of the last request that was sent by this path.
        self._connection: Connection | None = None
        # When the last answer was read by this path. One after the other: the loop need not look at the socket between.
        self._read_at = 0.0
        # The engine looks now and then whether that is still so.
        self._is_watched = False

    def send(self) -> bool:
        """From any thread: whether what is ready was sent; if not, the engine has to be called."""
        busy = self._engine.busy
        # The engine's own thread has it.
        if not busy.acquire(False):
            return False
        try:
            connection = self._send_one()
        finally:
            busy.release()
        if connection is None:
            return False
        self._connection = connection
        return True

    def read_until_told(self, bell: Bell, timeout_s: float | None) -> None:
        """Read answers in the engine's place until the bell rings, if there are any to come; gives up after READ_S."""
        connection = self._connection
        if connection is None:
            return
        busy = self._engine.busy
        if not busy.acquire(True, _HOLD_S):
            self.let_engine_read()
            return
        try:
            if bell.is_rung() or not self._is_last() or not connection.take_reading():
                return
        finally:
            busy.release()
        now = time.monotonic()
        deadline = now + (READ_S if timeout_s is None else min(timeout_s, READ_S))
        has_left = False
        try:
            while not has_left:
                connection.wait_readable(max(deadline - now, 0.0))
                if not busy.acquire(True, READ_S):
                    return
                try:
                    goes_on = connection.read_directly()
                    now = time.monotonic()
                    if bell.is_rung() or not goes_on or not self._is_last() or now >= deadline:
                        has_left = True
                        connection.leave_reading(keep=goes_on and self._is_habit(now))
                finally:
                    busy.release()
        finally:
            if not has_left:
                # Interrupted, or the engine is long at something: it takes the reading back when it can.
                self._on_engine(partial(connection.leave_reading, keep=False))

    def _is_habit(self, now: float) -> bool:
        """Whether the program reads one answer after the other by this path, so that it is likely to read the next."""
        often = now - self._read_at < READ_S
        self._read_at = now
        if often and not self._is_watched:
            self._is_watched = True
            self._on_engine(self._watch)
        return often

    def _watch(self) -> None:
        """On the engine's thread: take back the reading of a program that stopped reading."""
        if time.monotonic() - self._read_at < READ_S:
            self._engine.loop.call_later(READ_S, self._watch)
            return
        self._is_watched = False
        if self._connection is not None:
            self._connection.let_loop_read()

    def let_engine_read(self) -> None:
        """Somebody waits for an answer who will not read it."""
        connection = self._connection
        if connection is not None and self._is_watched:
            self._on_engine(connection.let_loop_read)

    def _on_engine(self, call: Callable[[], object]) -> None:
        # A loop that ended refuses; there is nothing to be read any more.
        with suppress(RuntimeError):
            self._engine.loop.call_soon_threadsafe(call)

    def tell(self, waiters: list[Waiter]) -> None:
        """Those who only sleep are woken from here; programs are called on the engine's thread, and in order."""
        if all(isinstance(each, Bell) for each in waiters):
            for each in waiters:
                each.settle()
        else:
            self._on_engine(partial(tell, waiters))
