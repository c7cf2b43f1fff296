"""The workers: threads for a plain function, tasks on a loop of their own for a coroutine function."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol

from braidlog.client.consumer.parallel.failure_policy import FailurePolicy
from braidlog.client.consumer.parallel.work_queue import WorkQueue
from braidlog.client.consumer.parallel.work_tracker import Work
from braidlog.client.consumer.record import ConsumerRecord

Handler = Callable[[ConsumerRecord], Any]


class WorkerPool(Protocol):
    def start(self) -> None: ...

    def notify(self) -> None:
        """There is new work, or the queue is closing; any thread."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait for the workers to leave, after the queue was closed; whether all did."""
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
        """The queue's own condition has told them."""

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
            self._queue.put_back(work, delay_s)
            return
        on_failure = self._policy.on_failure
        if on_failure == "raise":
            self._queue.abandon(work, problem)
            return
        try:
            if callable(on_failure):
                on_failure(work.record, problem)
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
            # Closed: the last worker has left already.
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
        # Nothing awaits between the look at the queue and here, and whoever adds work tells of it afterwards:
        # the news of what was added since that look is still to come.
        self._work_added.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._queue.seconds_until_due()):
                await self._work_added.wait()

    async def _failed(self, work: Work, problem: Exception) -> None:
        work.attempts += 1
        delay_s = self._policy.delay_after(work.attempts)
        if delay_s is not None:
            self._queue.put_back(work, delay_s)
            # The others wait for news without an end: they have to look at the time.
            self._work_added.set()
            return
        on_failure = self._policy.on_failure
        try:
            if on_failure == "raise":
                raise problem
            if callable(on_failure):
                outcome = on_failure(work.record, problem)
                if isawaitable(outcome):
                    await outcome
        except BaseException as worse:
            self._queue.abandon(work, worse)
            self._work_added.set()
        else:
            self._queue.finish(work, given_up=True)
