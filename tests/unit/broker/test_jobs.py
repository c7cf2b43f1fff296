"""The runner of storage's background jobs, whose pauses may change while they last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from braidlog.broker.environment import Executors
from braidlog.broker.jobs import JobRunner
from braidlog.core.errors import StorageFault
from braidlog.core.tasks import Tasks
from braidlog.storage.jobs import InlineExecutor, Job, Work


class Repeated:
    """A job that counts its runs."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.runs = 0
        self.ran = asyncio.Event()
        self.job = Job("repeated", lambda: self.interval, 0.0, self._run)

    def _run(self) -> Iterator[Work | None]:
        self.runs += 1
        self.ran.set()
        return iter(())

    async def next_run(self) -> None:
        self.ran.clear()
        await self.ran.wait()


def unexpected(problem: StorageFault | Exception) -> None:
    raise problem


def run(check: Callable[[JobRunner], Awaitable[None]]) -> None:
    async def main() -> None:
        tasks = Tasks("test")
        runner = JobRunner(Executors(lambda directory: InlineExecutor()), tasks, unexpected, unexpected)
        try:
            await check(runner)
        finally:
            await tasks.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_shorter_interval_ends_the_pause_under_way() -> None:
    async def check(runner: JobRunner) -> None:
        repeated = Repeated(3600.0)
        runner.start([repeated.job])
        await repeated.ran.wait()
        repeated.interval = 0.01
        runner.intervals_changed()
        await repeated.next_run()

    run(check)


def test_a_change_of_something_else_starts_nothing() -> None:
    async def check(runner: JobRunner) -> None:
        repeated = Repeated(3600.0)
        runner.start([repeated.job])
        await repeated.ran.wait()
        for _ in range(5):
            runner.intervals_changed()
            await asyncio.sleep(0)
        assert repeated.runs == 1

    run(check)


def test_a_job_that_runs_already_is_not_started_again() -> None:
    async def check(runner: JobRunner) -> None:
        repeated = Repeated(3600.0)
        runner.start([repeated.job])
        await repeated.ran.wait()
        runner.start([repeated.job])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert repeated.runs == 1

    run(check)
