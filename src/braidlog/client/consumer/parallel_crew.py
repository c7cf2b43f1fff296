"""Those who do the work: threads for a plain function, tasks on a loop of their own for a coroutine function."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol

from braidlog.client.consumer.parallel_book import Work
from braidlog.client.consumer.parallel_desk import Desk
from braidlog.client.consumer.parallel_failures import FailurePolicy
from braidlog.client.consumer.record import ConsumerRecord

Handler = Callable[[ConsumerRecord], Any]


class Crew(Protocol):
    def start(self) -> None: ...

    def tell(self) -> None:
        """There is new work, or the desk is closing; any thread."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait for the workers to leave, after the desk was closed; whether all did."""
        ...


def crew_for(desk: Desk, handler: Handler, policy: FailurePolicy, workers: int) -> Crew:
    # An object that is called as a function says so in its class.
    is_async = iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)
    return TaskCrew(desk, handler, policy, workers) if is_async else ThreadCrew(desk, handler, policy, workers)


class ThreadCrew:
    def __init__(self, desk: Desk, handler: Handler, policy: FailurePolicy, workers: int) -> None:
        self._desk = desk
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

    def tell(self) -> None:
        """The desk's own condition has told them."""

    def join(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        desk, handler = self._desk, self._handler
        while (work := desk.next_work()) is not None:
            try:
                handler(work.record)
            except Exception as problem:
                self._failed(work, problem)
            except BaseException as problem:
                desk.abandon(work, problem)
            else:
                desk.finish(work)

    def _failed(self, work: Work, problem: Exception) -> None:
        work.attempts += 1
        delay_s = self._policy.delay_after(work.attempts)
        if delay_s is not None:
            self._desk.put_back(work, delay_s)
            return
        on_failure = self._policy.on_failure
        if on_failure == "raise":
            self._desk.abandon(work, problem)
            return
        try:
            if callable(on_failure):
                on_failure(work.record, problem)
        except BaseException as worse:
            self._desk.abandon(work, worse)
        else:
            self._desk.finish(work, given_up=True)


class TaskCrew:
    """One thread with a loop, on which as many tasks as there are workers await their handlers."""

    def __init__(self, desk: Desk, handler: Handler, policy: FailurePolicy, workers: int) -> None:
        self._desk = desk
        self._handler = handler
        self._policy = policy
        self._workers = workers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="braidlog workers", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()

    def tell(self) -> None:
        loop = self._loop
        if loop is not None:
            # Closed: the last worker has left already.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._news.set)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._work_together())

    async def _work_together(self) -> None:
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_up.set()
        await asyncio.gather(*(self._work() for _ in range(self._workers)))

    async def _work(self) -> None:
        desk, handler = self._desk, self._handler
        while not desk.is_closing:
            work = desk.take()
            if work is None:
                await self._wait_for_news()
                continue
            try:
                await handler(work.record)
            except Exception as problem:
                await self._failed(work, problem)
            except BaseException as problem:
                desk.abandon(work, problem)
                self._news.set()
            else:
                desk.finish(work)

    async def _wait_for_news(self) -> None:
        # Nothing awaits between the look at the desk and here, and whoever adds work tells of it afterwards:
        # the news of what was added since that look is still to come.
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._desk.seconds_until_due()):
                await self._news.wait()

    async def _failed(self, work: Work, problem: Exception) -> None:
        work.attempts += 1
        delay_s = self._policy.delay_after(work.attempts)
        if delay_s is not None:
            self._desk.put_back(work, delay_s)
            # The others wait for news without an end: they have to look at the time.
            self._news.set()
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
            self._desk.abandon(work, worse)
            self._news.set()
        else:
            self._desk.finish(work, given_up=True)
