"""Drives storage's background jobs on the loop: decisions here, blocking halves in the directory's executor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from braidlog.broker.environment import Executors
from braidlog.core.errors import FatalError, StorageFault
from braidlog.core.tasks import Tasks
from braidlog.storage.jobs import Job

log = logging.getLogger("braidlog.jobs")


class JobRunner:
    def __init__(
        self,
        executors: Executors,
        tasks: Tasks,
        on_fault: Callable[[StorageFault], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._executors = executors
        self._tasks = tasks
        self._on_fault = on_fault
        self._on_fatal = on_fatal
        self._changed = asyncio.Event()
        self._running: set[str] = set()

    def start(self, jobs: list[Job]) -> None:
        """Those of a name that runs already are left out."""
        for job in jobs:
            if job.name in self._running:
                continue
            self._running.add(job.name)
            self._tasks.spawn(job.name, self._repeat(job))

    def intervals_changed(self) -> None:
        """A job that pauses does so as long as its new interval says, counted from when it began to."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _repeat(self, job: Job) -> None:
        await asyncio.sleep(job.initial_delay)
        while True:
            try:
                await self.run_once(job)
            except StorageFault as fault:
                self._on_fault(fault)
            except FatalError as problem:
                self._on_fatal(problem)
                return
            except Exception as problem:
                # One bad run must not end the job for good.
                log.error("%s failed; it is tried again in %g s", job.name, job.interval(), exc_info=problem)
            await self._pause(job)

    async def _pause(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            left = began + job.interval() - loop.time()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def run_once(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        for work in job.run():
            if work is None:
                # The job has looked at many logs: let the loop serve others first.
                await asyncio.sleep(0)
                continue
            try:
                finish = await loop.run_in_executor(self._executors.of(work.executor or work.directory), work.act)
                if finish is not None:
                    finish()
            except StorageFault as fault:
                self._on_fault(fault)
