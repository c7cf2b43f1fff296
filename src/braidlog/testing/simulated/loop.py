"""An event loop without threads, sockets or a real clock: time stands still while callbacks run and jumps between them.

    ready callbacks, first in first out  →  none left: time jumps to the next timer  →  none either: SimulationDeadlock

What a thread pool would do runs as one callback after a delay that the seeded random draws, and its result arrives
after another one, so that a crash can fall before, or between the deed and the news of it.

Every callback belongs to the process whose context it was scheduled in. A process that has ended runs nothing more:
its callbacks are skipped and its coroutines closed, as if the kernel had taken the memory away.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import inspect
from _thread import LockType, get_ident
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
P = ParamSpec("P")

# Seconds that a job in an executor waits for its thread, and that its result takes to the loop: now and then long.
_SHORT: Final = 0.0005
_LONG: Final = 0.3
_LONG_ONE_IN: Final = 15
# Tasks that are remembered before it is looked which of them have ended.
_TASKS_AT_FIRST: Final = 256


class SimulationDeadlock(Exception):
    """Nothing is ready and no timer is set, but what was waited for has not happened."""


class ProcessEnded(BaseException):
    """Raised inside a process that a fault ends: nothing may catch it, and nothing of the process runs after it."""


class Process:
    """Whose callbacks, tasks and jobs these are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        # While it is paused: what would have run, in order.
        self.held: list[_Handle] | None = None
        self.context = contextvars.copy_context()
        self.context.run(_PROCESS.set, self)

    def end(self) -> None:
        self.alive = False

    def __repr__(self) -> str:
        return f"<Process {self.name}{'' if self.alive else ', ended'}>"


_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def current_process() -> Process | None:
    return _PROCESS.get()


class SimulatedExecutor(Executor):
    """Stands for so many threads. Jobs come through the loop; `submit` from inside a job runs at once."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future


class _Handle(asyncio.TimerHandle):
    """What the loop runs; also a timer, because only those know their time.

    Tens of thousands are made in a life: only what the loop reads is set, and none of what asyncio keeps to debug.
    """

    __slots__ = ("arguments", "call", "process", "where")

    def __init__(
        self, when: float, call: Callable[..., object], arguments: tuple[Any, ...], where: contextvars.Context
    ) -> None:
        self._when = when
        self._cancelled = False
        self.call: Callable[..., object] | None = call
        self.arguments = arguments
        self.where = where
        self.process: Process | None = where.get(_PROCESS)

    def cancel(self) -> None:
        """It stays in the loop until its time and is skipped then."""
        self._cancelled = True
        self.call = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def __repr__(self) -> str:
        return f"<{'cancelled ' if self._cancelled else ''}callback {self.call} at {self._when:.6f}>"


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, random: Random, *, on_problem: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._random = random
        self._now = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._sequence = 0
        # In the order in which they began, some that have ended among them.
        self._tasks: dict[asyncio.Task[Any], Process | None] = {}
        self._most_tasks = _TASKS_AT_FIRST
        # Per executor: when each of its threads is free again.
        self._threads: dict[Executor, list[float]] = {}
        self._on_problem = on_problem
        self._running = False
        self._closed = False
        # What went wrong where nothing waited for it; a simulation fails on any.
        self.problems: list[dict[str, Any]] = []
        # Called with the process that a fault has ended from inside.
        self.on_process_ended: Callable[[Process], None] | None = None
        # Locks that threads of programs wait for; whoever releases one cannot say so.
        self._locks: list[tuple[LockType, asyncio.Future[None]]] = []
        # The thread in which callbacks run.
        self.thread_id = get_ident()

    # Time

    def time(self) -> float:
        return self._now

    def monotonic(self) -> float:
        """What paces long work (`core.time_slice`): none takes time here, so that a seed always gives one order."""
        return self._now

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = _Handle(self._now, callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _Handle(when, callback, args, contextvars.copy_context() if context is None else context)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    # Tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        where = contextvars.copy_context() if context is None else context
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=where)
        self._tasks[task] = where.get(_PROCESS)
        if len(self._tasks) > self._most_tasks:
            self._forget_ended_tasks()
        return task

    def _forget_ended_tasks(self) -> None:
        """Now and then: to be told of each end would cost a callback for each task."""
        self._tasks = {task: owner for task, owner in self._tasks.items() if not task.done()}
        self._most_tasks = max(_TASKS_AT_FIRST, 2 * len(self._tasks))

    def released(self, lock: LockType, timeout_s: float) -> asyncio.Future[None]:
        """Done as soon as the lock is free, at the latest after so long."""
        future = self.create_future()
        if lock.locked():
            timer = self.call_later(timeout_s, _resolve, future, None)
            future.add_done_callback(lambda _: timer.cancel())
            self._forget_locks()
            self._locks.append((lock, future))
        else:
            future.set_result(None)
        return future

    def _tell_of_released(self) -> None:
        for lock, future in self._locks:
            if not lock.locked():
                _resolve(future, None)
        self._forget_locks()

    def _forget_locks(self) -> None:
        """Those that nobody waits for any more."""
        self._locks[:] = [each for each in self._locks if not each[1].done()]

    def tasks_of(self, process: Process) -> list[asyncio.Task[Any]]:
        """Those that have not ended, in the order in which they began."""
        return [task for task, owner in self._tasks.items() if owner is process and not task.done()]

    def end(self, process: Process) -> None:
        """The process is gone: its coroutines are closed where they stand, nothing of it runs any more."""
        process.end()
        for task in self.tasks_of(process):
            del self._tasks[task]
            _close(task)

    def pause(self, process: Process, seconds: float) -> None:
        """As SIGSTOP and SIGCONT do it: nothing of it runs for so long, then all that came meanwhile, in order."""
        if process.held is None:
            process.held = []
            self.call_later(seconds, self._resume, process, context=contextvars.Context())

    def _resume(self, process: Process) -> None:
        held, process.held = process.held, None
        self._ready.extend(held or ())

    # Executors

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        if executor is None:
            raise ValueError("a simulation has no default executor: name one")
        workers = executor.workers if isinstance(executor, SimulatedExecutor) else 1
        free = self._threads.setdefault(executor, [0.0] * workers)
        thread = free.index(min(free))
        began = max(self._now, free[thread]) + self._delay()
        ended = began + self._delay()
        free[thread] = ended
        future: asyncio.Future[T] = self.create_future()
        self.call_at(began, self._run_job, future, ended, func, args)
        return future

    def _run_job(self, future: asyncio.Future[T], ended: float, func: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            result = func(*args)
        except Exception as problem:
            self.call_at(ended, _fail, future, problem)
        else:
            self.call_at(ended, _resolve, future, result)

    def _delay(self) -> float:
        longest = _LONG if self._random.randrange(_LONG_ONE_IN) == 0 else _SHORT
        return self._random.random() * longest

    # Running

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        goal: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        self.thread_id = get_ident()
        try:
            self._run_until(goal.done)
        finally:
            self._running = False
            asyncio._set_running_loop(before)
        return goal.result()

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        ready, timers, locks = self._ready, self._timers, self._locks
        next_ready, next_timer = ready.popleft, heapq.heappop
        while not is_done():
            if ready:
                handle = next_ready()
            elif timers:
                when, _, handle = next_timer(timers)
                if handle._cancelled:
                    continue
                if when > self._now:
                    self._now = when
            else:
                waiting = ", ".join(task.get_name() for task in self._tasks if not task.done()) or "nothing"
                raise SimulationDeadlock(f"at {self._now:.6f} s nothing is left to run; unfinished: {waiting}")
            call, process = handle.call, handle.process
            if call is None:
                continue
            if process is not None:
                if not process.alive:
                    continue
                if process.held is not None:
                    process.held.append(handle)
                    continue
            try:
                handle.where.run(call, *handle.arguments)
            except ProcessEnded:
                assert process is not None, "a fault may end only what runs as a process"
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as problem:
                if process is None or process.alive:
                    self.call_exception_handler(
                        {"message": "a callback failed", "callback": call, "exception": problem}
                    )
            if process is not None and not process.alive:
                self._bury(process)
            for lock, _ in locks:
                if not lock.locked():
                    self._tell_of_released()
                    break

    def _bury(self, process: Process) -> None:
        self.end(process)
        if self.on_process_ended is not None:
            self.on_process_ended(process)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._closed or "callback" not in context:
            # What asyncio says when it collects a task or future whose result was never read: those of ended
            # processes, mostly, and at a moment that the garbage collector chooses.
            return
        self.problems.append(context)
        if self._on_problem is not None:
            self._on_problem(context)

    def is_running(self) -> bool:
        return self._running

    @property
    def is_current(self) -> bool:
        """Whether the caller is a callback or coroutine of this loop."""
        return self._running and get_ident() == self.thread_id

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def close(self) -> None:
        """End every task that is left."""
        self._closed = True
        for task in [each for each in self._tasks if not each.done()]:
            _close(task)
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()


def _close(task: asyncio.Task[Any]) -> None:
    """Its coroutine ends where it stands; one that has not begun yet, with those that it was to await."""
    coroutine: Any = task.get_coro()
    if coroutine is None:
        return
    waiting = [coroutine]
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        waiting += filter(inspect.iscoroutine, inspect.getcoroutinelocals(coroutine).values())
    for each in waiting:
        # A coroutine that awaits while it is closed protests; the dead are not heard.
        with contextlib.suppress(Exception, ProcessEnded):
            each.close()


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], problem: Exception) -> None:
    if not future.done():
        future.set_exception(problem)


EPOCH_MS: Final = 1_700_000_000_000


class SimulatedClock:
    def __init__(self, loop: asyncio.AbstractEventLoop, epoch_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

        # The loop's own: whatever has to do with time asks over and over.
        self.monotonic = loop.time

    def wall_ms(self) -> int:
        return self._epoch_ms + int(self._loop.time() * 1000)
