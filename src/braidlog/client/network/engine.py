"""The thread behind a client: one event loop that owns its connections and background work.

Programs call from their own threads; `run` hands a coroutine over and waits, `soon` and `spawn` hand over and go on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import selectors
import threading
from _thread import LockType, allocate_lock
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from braidlog.client.errors import ClosedError, ConcurrentUseError, RequestTimeout
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.client")

T = TypeVar("T")

_JOIN_S: Final = 10.0


class _SleepingSelector(selectors.DefaultSelector):
    """Lets go of a lock while it waits for sockets."""

    def __init__(self, busy: LockType) -> None:
        super().__init__()
        self._busy = busy

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._busy.release()
        try:
            ready = super().select(timeout)
        finally:
            self._busy.acquire()
        # Another thread that had the lock meanwhile may have unregistered a socket and registered it again. asyncio
        # would take the event of the old reader as a reason to remove the new one, and the socket would never be
        # read again. The new one has its event at the next call.
        watched = self.get_map()
        return [(key, events) for key, events in ready if watched.get(key.fd) is key]


def in_event_loop() -> bool:
    """Whether this thread runs an event loop, which a call that waits would block."""
    return asyncio._get_running_loop() is not None


class Engine:
    def __init__(self, name: str) -> None:
        self.name = name
        # Held by the engine's thread but while it sleeps: a thread that gets it may do the engine's work, as
        # long as that neither waits nor needs the loop to run.
        self.busy = allocate_lock()
        self.loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop(_SleepingSelector(self.busy))
        self._tasks = Tasks(name)
        self._process = os.getpid()
        self._closed = False
        # Why the thread ended without having been closed; `on_death` is called with it.
        self._death: ClosedError | None = None
        self.on_death: list[Callable[[ClosedError], None]] = []
        # Futures of work that was handed over; they fail if the thread ends before it.
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        # Held while work is handed over, so that nothing is handed over behind the end and then waits for ever. A
        # finalizer may hand over at any point, also while its own thread does so.
        self._handing = threading.RLock()
        # Daemon: a program that forgets to close a client must still be able to end.
        self._thread = threading.Thread(target=self._serve, name=f"braidlog {name}", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.busy.acquire()
        try:
            while True:
                try:
                    self.loop.run_forever()
                    return
                except (SystemExit, KeyboardInterrupt) as problem:
                    # Only the main thread can end the program. To end here would leave all callers waiting.
                    log.error("%r was raised on the thread of this %s, where it ends nothing", problem, self.name)
        except BaseException as problem:
            self._die(problem)
        finally:
            # One that is broken cannot always be closed.
            with suppress(Exception):
                self.loop.close()
            self.busy.release()

    def _die(self, problem: BaseException) -> None:
        """The loop itself failed: callers must not wait for it any more."""
        log.critical("the thread of this %s ended", self.name, exc_info=problem)
        death = ClosedError(f"the thread of this {self.name} ended ({problem!r}); make a new one")
        with self._handing:
            self._closed = True
            self._death = death
            waiting = list(self._waiting)
        for each in waiting:
            # A caller that gave up has its own error.
            with suppress(concurrent.futures.InvalidStateError):
                each.set_exception(death)
        for callback in self.on_death:
            callback(death)
        for task in asyncio.all_tasks(self.loop):
            # No loop will ever end it; what it holds is let go of now, not whenever it is collected.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(Exception):
                task.get_coro().close()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the engine's own thread."""
        return threading.current_thread() is self._thread

    @property
    def thread_id(self) -> int:
        """As `get_ident` has it."""
        return self._thread.ident or 0

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check_usable(self) -> None:
        if self._closed:
            raise self._death or ClosedError(f"this {self.name} is closed; make a new one")
        if os.getpid() != self._process:
            raise ClosedError(f"this {self.name} was made before a fork, and its thread stayed behind; make a new one")

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the engine and wait for its result, from any other thread."""
        if self.is_current:
            work.close()
            raise ConcurrentUseError(
                f"a callback of this {self.name} cannot wait for the {self.name} itself; do this in another thread"
            )
        waiting = self.begin(work)
        try:
            return waiting.result(timeout_s)
        except concurrent.futures.CancelledError as problem:
            raise ClosedError(f"this {self.name} was closed meanwhile") from problem
        except TimeoutError as problem:
            if waiting.done():
                raise
            waiting.cancel()
            raise RequestTimeout(f"not done within {timeout_s:g} s") from problem
        except BaseException:
            # Ctrl-C in the caller: nothing waits for the result any more.
            waiting.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine from any thread; the future ends when it does, at the latest when the engine closes."""
        try:
            self.check_usable()
            with self._handing:
                self.check_usable()
                waiting = asyncio.run_coroutine_threadsafe(work, self.loop)
                self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)
            return waiting
        except BaseException:
            work.close()
            raise

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call on the engine's thread, as soon as it is free."""
        # Twice: the lock of before a fork may never be released, and one who waited for it may come too late.
        self.check_usable()
        with self._handing:
            self.check_usable()
            self.loop.call_soon_threadsafe(callback, *arguments)

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start a task that lives until it ends or the engine closes; its failure is logged."""
        if self.is_current:
            self._tasks.spawn(name, work)
            return
        try:
            self.soon(self._tasks.spawn, name, work)
        except BaseException:
            work.close()
            raise

    def close(self) -> None:
        """Cancel what still runs and end the thread; safe to call twice, and from a callback."""
        if os.getpid() != self._process:
            self._closed = True
            return
        with self._handing:
            if self._closed:
                return
            self._closed = True
            self.loop.call_soon_threadsafe(self._begin_end)
        if not self.is_current:
            self._thread.join(_JOIN_S)
            if self._thread.is_alive():
                log.warning("the thread of this %s did not end within %g s; left behind", self.name, _JOIN_S)

    def _begin_end(self) -> None:
        # The last task: owned by the loop itself, which stops with it.
        self._last = self.loop.create_task(self._end(), name=f"{self.name}: end")

    async def _end(self) -> None:
        await self._tasks.close()
        here = asyncio.current_task()
        # What is cancelled may start something once more.
        while others := [task for task in asyncio.all_tasks() if task is not here]:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await self.loop.shutdown_default_executor()
        self.loop.stop()
