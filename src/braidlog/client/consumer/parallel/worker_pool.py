"""The workers, and what becomes of a record whose handler fails.

A plain function runs in threads, a coroutine function in tasks on a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Literal, NamedTuple, Protocol

from braidlog.client.consumer.parallel.work_queue import WorkQueue
from braidlog.client.consumer.parallel.work_tracker import Work
from braidlog.client.consumer.record import ConsumerRecord

Handler = Callable[[ConsumerRecord], Any]
# Called with the record and the last error; may be a coroutine function if the handler is one. What it returns from
# counts as done, what it raises stops the consumer.
DeadLetter = Callable[[ConsumerRecord, Exception], Any]
OnFailure = Literal["raise", "skip"] | DeadLetter


class FailurePolicy(NamedTuple):
    """A record whose handler failed is retried after a while, and in the end skipped, passed on, or raised."""

    # Attempts after the first; None for as many as it takes.
    retries: int | None = 0
    # Before the first retry; doubles with each until the longest.
    backoff_s: float = 0.1
    longest_backoff_s: float = 10.0
    on_failure: OnFailure = "raise"

    def check(self) -> None:
        if self.retries is not None and self.retries < 0:
            raise ValueError(f"retries is {self.retries}: give 0 or more, or None to go on for ever")
        if not (callable(self.on_failure) or self.on_failure in ("raise", "skip")):
            raise ValueError(f"on_failure is {self.on_failure!r}: give 'raise', 'skip' or a function")

    def delay_after(self, attempts: int) -> float | None:
        """How long to wait after so many failed attempts; None where there are to be no more."""
        if self.retries is not None and attempts > self.retries:
            return None
        # Two to a power that a float can hold.
        return min(self.backoff_s * 2.0 ** min(attempts - 1, 60), self.longest_backoff_s)

    def give_up(self, record: ConsumerRecord, problem: Exception) -> Any:
        """No more retries: raises, or returns what the function for failed records returns (perhaps an awaitable)."""
        if callable(self.on_failure):
            return self.on_failure(record, problem)
        if self.on_failure == "raise":
            raise problem
        return None


class WorkerPool(Protocol):
    def start(self) -> None: ...

    def notify(self) -> None:
        """There is new work, or the queue is closing; any thread."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait for the workers to end, after the queue was closed; whether all did."""
        ...


def worker_pool_for(queue: WorkQueue, handler: Handler, policy: FailurePolicy, workers: int) -> WorkerPool:
    # An object that is called as a function says so in its class.
    is_async = iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)
    return (
        AsyncWorkerPool(queue, handler, policy, workers)
        if is_async
        else ThreadWorkerPool(queue, handler, policy, workers)
    )


class ThreadWorkerPool:
    def __init__(self, queue: WorkQueue, handler: Handler, policy: FailurePolicy, workers: int) -> None:
        self._queue = queue
        self._handler = handler
        self._policy = policy
        # Daemons, so that a handler that hangs cannot keep a program from ending.
        self._threads = [
            threading.Thread(target=self._work, name=f"braidlog worker {number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def notify(self) -> None:
        """They wait for the queue's own condition."""

    def join(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        queue, handler = self._queue, self._handler
        while (work := queue.next_work()) is not None:
            try:
                handler(work.record)
            except Exception as problem:
                self._failed(work, problem)
            except BaseException as problem:
                queue.abandon(work, problem)
            else:
                queue.finish(work)

    def _failed(self, work: Work, problem: Exception) -> None:
        work.attempts += 1
        delay_s = self._policy.delay_after(work.attempts)
        if delay_s is not None:
            self._queue.retry(work, delay_s)
            return
        try:
            self._policy.give_up(work.record, problem)
        except BaseException as worse:
            self._queue.abandon(work, worse)
        else:
            self._queue.finish(work, given_up=True)


class AsyncWorkerPool:
    """One thread with a loop, on which as many tasks as there are workers await their handlers."""

    def __init__(self, queue: WorkQueue, handler: Handler, policy: FailurePolicy, workers: int) -> None:
        self._queue = queue
        self._handler = handler
        self._policy = policy
        self._workers = workers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="braidlog workers", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()

    def notify(self) -> None:
        loop = self._loop
        if loop is not None:
            # Closed: the last worker has ended already.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._work_added.set)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._work_together())

    async def _work_together(self) -> None:
        self._work_added = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_up.set()
        await asyncio.gather(*(self._work() for _ in range(self._workers)))

    async def _work(self) -> None:
        queue, handler = self._queue, self._handler
        while not queue.is_closing:
            work = queue.take()
            if work is None:
                await self._wait_for_work()
                continue
            try:
                await handler(work.record)
            except Exception as problem:
                await self._failed(work, problem)
            except BaseException as problem:
                queue.abandon(work, problem)
                self._work_added.set()
            else:
                queue.finish(work)

    async def _wait_for_work(self) -> None:
        # Nothing awaits between the look at the queue and here, and `notify` comes after work was added:
        # the notification of what was added since that look is still to come.
        self._work_added.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._queue.seconds_until_due()):
                await self._work_added.wait()

    async def _failed(self, work: Work, problem: Exception) -> None:
        work.attempts += 1
        delay_s = self._policy.delay_after(work.attempts)
        if delay_s is not None:
            self._queue.retry(work, delay_s)
            # The others wait without a time limit: they have to see when this is due.
            self._work_added.set()
            return
        try:
            outcome = self._policy.give_up(work.record, problem)
            if isawaitable(outcome):
                await outcome
        except BaseException as worse:
            self._queue.abandon(work, worse)
            self._work_added.set()
        else:
            self._queue.finish(work, given_up=True)
