"""What a broker needs of the world around it, so that a simulation can be that world."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from braidlog.cluster.journal_files import JournalFiles, OsJournalFiles
from braidlog.cluster.store import CoordinationStore
from braidlog.core.clock import Clock, SystemClock
from braidlog.storage.cleaner.pass_runner import PassRunner, ProcessPassRunner
from braidlog.storage.dirs.directory_lock import lock_directory
from braidlog.storage.dirs.log_directory import LockDirectory
from braidlog.storage.files import Files, OsFiles

if TYPE_CHECKING:
    from braidlog.net.outbound.connector import Connector

log = logging.getLogger("braidlog.executors")

# More come with work that goes on side by side.
_THREADS_STARTED: Final = 2


class Environment(NamedTuple):
    clock: Clock
    files: Files
    random: Random
    executors: Executors
    # Opens the coordination store's files in a directory.
    journal_files: Callable[[str], JournalFiles]
    lock: LockDirectory
    new_id: Callable[[], bytes]
    # Where compaction reads and writes: a process of its own, or, in a simulation, here.
    passes: Callable[[Files], PassRunner]
    # What this process may use: of its control group where that has a limit, else of the machine.
    memory_bytes: int
    cpus: int
    # How other brokers are reached; over TCP where there is none.
    connector: Connector | None = None
    # Opens a session with the ensemble of zookeeper.connect; a real one where there is none.
    open_session: Callable[[], Awaitable[CoordinationStore]] | None = None


class Executors:
    """One small executor per data directory, made when first needed, for what may block."""

    def __init__(self, make: Callable[[str], Executor], threads: int = 0) -> None:
        """`threads` is how many of each `start` starts, where they are threads."""
        self._make = make
        self._threads = threads
        self._by_directory: dict[str, Executor] = {}

    def start(self, directories: Iterable[str]) -> None:
        """Before requests need them: a pool starts a thread when there is work for it, and the loop waits for that."""
        for directory in directories:
            executor = self.of(directory)
            if self._threads:
                # Each of them waits for the others, so that no two get the same thread.
                all_run = threading.Barrier(self._threads)
                for _ in range(self._threads):
                    executor.submit(all_run.wait)

    def of(self, directory: str) -> Executor:
        executor = self._by_directory.get(directory)
        if executor is None:
            executor = self._by_directory[directory] = self._make(directory)
        return executor

    def run(self, directory: str, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do `work` in the directory's executor, then call `done` on the loop with what it raised, if anything."""
        future = asyncio.get_running_loop().run_in_executor(self.of(directory), work)

        def on_done(finished: asyncio.Future[None]) -> None:
            problem = finished.exception()
            if problem is None or isinstance(problem, Exception):
                done(problem)

        future.add_done_callback(on_done)

    def close(self) -> None:
        for executor in self._by_directory.values():
            executor.shutdown(wait=True)


def system_environment(threads_per_directory: int = 2) -> Environment:
    """The real world."""
    from braidlog.core.ids import random_id

    def make(directory: str) -> Executor:
        return ThreadPoolExecutor(threads_per_directory, thread_name_prefix=f"braidlog {directory}")

    return Environment(
        clock=SystemClock(),
        files=OsFiles(),
        random=Random(),
        executors=Executors(make, min(_THREADS_STARTED, threads_per_directory)),
        journal_files=OsJournalFiles,
        lock=lock_directory,
        new_id=random_id,
        passes=ProcessPassRunner,
        memory_bytes=memory_of_this_process(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


# Version 2 of control groups, then version 1. Inside a container these files are the container's own.
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_of_this_process() -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [machine]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    for path in [*_CGROUP_LIMITS, *_own_cgroup_limits()]:
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):
            # Not there, or "max": no limit of this kind.
            continue
    return min(limits)


def _own_cgroup_limits() -> list[str]:
    """Where the limit of this process's own group is, on a machine that shows all groups (`/proc/self/cgroup`)."""
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    paths: list[str] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            paths.append(f"/sys/fs/cgroup{path}/memory.max")
        elif "memory" in controllers.split(","):
            paths.append(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")
    return paths
