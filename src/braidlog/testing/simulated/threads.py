"""Threads of programs that take turns with the loop: at any moment one of them runs, and all others wait.

    loop    call_soon(resume) ───┐ waits        ┌─── goes on with the next callback
    thread                       └ runs … waits ┘    … until what it waits for has happened

A program may so call what blocks (a poll, a commit). Time passes, and other programs act, only while it waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from braidlog.testing.simulated.loop import Process, ProcessEnded, SimulatedLoop, current_process

T = TypeVar("T")
P = ParamSpec("P")


class _Thread:
    def __init__(self, threads: SimulatedThreads, number: int) -> None:
        self._threads = threads
        self._turn = allocate_lock()
        self._turn.acquire()
        self._job: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._serve, name=f"simulated thread {number}", daemon=True)
        self._thread.start()
        self.ident = self._thread.ident or 0

    def begin(self, job: Callable[[], None]) -> None:
        self._job = job
        self.resume()

    def resume(self) -> None:
        """In the loop's thread: until this one waits, or its job is done."""
        self._turn.release()
        self._threads.turn_of_loop.acquire()

    def pause(self) -> None:
        """In this thread: until the loop resumes it."""
        self._threads.turn_of_loop.release()
        self._turn.acquire()

    def join(self) -> None:
        """After its last turn."""
        self._job = None
        self._turn.release()
        self._thread.join()

    def _serve(self) -> None:
        self._turn.acquire()
        while self._job is not None:
            job, self._job = self._job, None
            job()
            self._threads.free.append(self)
            self.pause()


class SimulatedThreads:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.free: list[_Thread] = []
        self.turn_of_loop = allocate_lock()
        self.turn_of_loop.acquire()
        self._loop = loop
        self._all: dict[int, _Thread] = {}
        # Those that wait, with what resumes them and whose they are.
        self._waiting: dict[_Thread, tuple[asyncio.Future[None], Process | None]] = {}
        self._closed = False

    async def call(
        self, context: contextvars.Context, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call in a thread; the context says in which process."""
        done: asyncio.Future[T] = self._loop.create_future()

        def job() -> None:
            try:
                result = context.run(function, *args, **kwargs)
            except ProcessEnded:
                done.cancel()
            except BaseException as problem:
                if not done.done():
                    done.set_exception(problem)
            else:
                if not done.done():
                    done.set_result(result)

        self._loop.call_soon(self._begin, job, context=context.copy())
        return await done

    def _begin(self, job: Callable[[], None]) -> None:
        if not self.free:
            thread = _Thread(self, len(self._all) + 1)
            self._all[thread.ident] = thread
            self.free.append(thread)
        self.free.pop().begin(job)

    def acquire(self, lock: LockType, timeout_s: float) -> bool:
        """Wait for a lock; where no thread of a program calls but the loop's own, run the loop meanwhile."""
        ends = self._loop.time() + timeout_s
        while not lock.acquire(blocking=False):
            left = ends - self._loop.time()
            if left <= 0:
                return False
            self._wait(self._loop.released(lock, left))
        return True

    def sleep(self, seconds: float) -> None:
        event = self._loop.create_future()
        self._loop.call_later(seconds, event.set_result, None)
        self._wait(event)

    def _wait(self, event: asyncio.Future[None]) -> None:
        if self._loop.is_current:
            raise RuntimeError("a coroutine in a simulation must not block; use `SimulatedProgram.call` for this")
        if not self._loop.is_running():
            self._loop.run_until_complete(event)
            return
        self._check_alive()
        thread = self._all[get_ident()]
        self._waiting[thread] = (event, current_process())
        # In no process: a thread whose process has ended still has to leave what it is in.
        event.add_done_callback(lambda _: self._resume(thread, event), context=contextvars.Context())
        thread.pause()
        self._check_alive()

    def _resume(self, thread: _Thread, event: asyncio.Future[None]) -> None:
        if thread in self._waiting and self._waiting[thread][0] is event:
            del self._waiting[thread]
            thread.resume()

    def _check_alive(self) -> None:
        process = current_process()
        if self._closed or (process is not None and not process.alive):
            raise ProcessEnded("the process of this thread has ended")

    def process_ended(self, process: Process) -> None:
        """Its threads leave what they wait in, with ProcessEnded."""
        for thread, (event, owner) in list(self._waiting.items()):
            if owner is process:
                self._loop.call_soon(self._resume, thread, event, context=contextvars.Context())

    def close(self) -> None:
        """End all threads; those that wait leave with ProcessEnded."""
        self._closed = True
        for thread, (event, _) in list(self._waiting.items()):
            self._resume(thread, event)
        for thread in self.free:
            thread.join()
        self.free.clear()
