"""How the engine's thread wakes the program's thread that waits inside the consumer."""

from __future__ import annotations

import contextlib
import threading
from _thread import LockType
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from braidlog.client.errors import RequestTimeout, WakeupError
from braidlog.client.network.engine import Engine
from braidlog.core.clock import Clock

T = TypeVar("T")


class Wakeup:
    """One thread of the program waits, any thread notifies; a notification that comes first ends the next wait."""

    def __init__(self, clock: Clock, acquire: Callable[[LockType, float], bool] | None = None) -> None:
        self._clock = clock
        self._acquire = acquire
        # Held: nothing happened. Released by `notify`, taken again by the wait that it ends.
        self._signal = threading.Lock()
        self._signal.acquire()
        self._wakeup = False

    def notify(self) -> None:
        # RuntimeError: it is notified already, and one notification will do.
        with contextlib.suppress(RuntimeError):
            self._signal.release()

    def wait(self, timeout_s: float) -> bool:
        """Until it is notified; False when the time is over first."""
        if timeout_s <= 0:
            return self._signal.acquire(blocking=False)
        if self._acquire is not None:
            return self._acquire(self._signal, timeout_s)
        # The system's longest wait is some days.
        return self._signal.acquire(timeout=min(timeout_s, 86_400.0))

    def wakeup(self) -> None:
        """From any thread: the call that waits, or else the next that would, ends with WakeupError."""
        self._wakeup = True
        self.notify()

    def check(self) -> None:
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("wakeup() was called; call again to go on, or close()")

    def run(self, engine: Engine, work: Coroutine[Any, Any, T], deadline: float, what: str = "the request") -> T:
        """The coroutine's result, unless `wakeup` or the deadline (on the monotonic clock) comes first."""
        done: Future[T] = engine.begin(work)
        done.add_done_callback(self._on_done)
        try:
            while not done.done():
                self.check()
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise RequestTimeout(f"{what} was not done in time; give it longer, or see whether brokers answer")
                self.wait(left)
            return done.result()
        finally:
            done.cancel()

    def _on_done(self, _done: Future[Any]) -> None:
        self.notify()
