"""Recurring background jobs as data: when they run, and the blocking work that a run asks for.

A job decides on the thread that owns the logs and yields `Work`; its blocking half runs in the executor of the data
directory it touches, and may return a second half that runs on the owning thread again:

    for work in job.run():                        # owning thread
        if work is None:                              # nothing to do, but time to let others run
            continue
        finish = run_in_executor_of(work, work.act)   # may block
        if finish is not None:
            finish()                                  # owning thread

Who drives them is not storage's concern: the broker has a loop, a simulation its fake clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from braidlog.core.errors import StorageFault

P = ParamSpec("P")
T = TypeVar("T")

Finish = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Work:
    """A blocking piece of a job, for the executor named `executor` where there is one, else for that of `directory`.

    Each is completed, both halves, before the job is asked for the next one.
    """

    directory: str
    name: str
    act: Callable[[], Finish | None]
    # Work that takes long and must not hold up the directory's syncs has its own thread.
    executor: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Runs first after `initial_delay` seconds, then `interval()` seconds after each completion."""

    name: str
    # Asked before each pause, since the setting behind it may change.
    interval: Callable[[], float]
    initial_delay: float
    run: Callable[[], Iterable[Work | None]]


class InlineExecutor(Executor):
    """Runs what it is given at once, in the caller's thread: simulations and tests see one order of events."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future


def run_inline(work_items: Iterable[Work | None], on_fault: Callable[[StorageFault], None]) -> int:
    """Both halves of every item, here and now; a failed directory is reported and its item dropped."""
    done = 0
    for work in _until_exhausted(work_items, on_fault):
        if work is None:
            continue
        try:
            finish = work.act()
            if finish is not None:
                finish()
        except StorageFault as fault:
            on_fault(fault)
        done += 1
    return done


def _until_exhausted(
    work_items: Iterable[Work | None], on_fault: Callable[[StorageFault], None]
) -> Iterator[Work | None]:
    try:
        yield from work_items
    except StorageFault as fault:
        on_fault(fault)
