"""A program in a simulation: a process of its own with real clients, on the simulation's clock, loop and network.

program = SimulatedProgram(simulation, "shop")
async def work():
    producer = Producer(bootstrap_servers="simulated:9092")
    consumer = await program.call(Consumer, …)
    await producer.send("orders", "3 apples")               # what can be awaited, in a coroutine
    records = await program.call(consumer.poll, 1.0)        # what blocks, in a thread of the program
program.spawn(work())
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from _thread import allocate_lock
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from braidlog.client.errors import ConcurrentUseError
from braidlog.client.network.engine import Engine
from braidlog.client.runtime import ClientRuntime, use_runtime
from braidlog.core.tasks import Tasks
from braidlog.net.outbound.errors import ClosedError, RequestTimeout
from braidlog.testing.simulated.loop import Process, SimulatedLoop
from braidlog.testing.simulated.network import SimulatedConnector
from braidlog.testing.simulated.simulation import Simulation
from braidlog.testing.simulated.threads import SimulatedThreads

# Longer than any call of a program.
_LONGEST_WAIT_S: Final = 3600.0

T = TypeVar("T")
P = ParamSpec("P")


class SimulatedProgram:
    def __init__(self, simulation: Simulation, name: str) -> None:
        self.process = Process(name)
        self._simulation = simulation
        self._engines: list[SimulatedEngine] = []
        self.runtime = ClientRuntime(
            clock=simulation.clock,
            random=simulation.random,
            new_engine=self._new_engine,
            connector=SimulatedConnector(simulation.network, self.process),
            acquire=simulation.threads.acquire,
        )
        # Whatever runs in the process makes its clients there.
        self.process.context.run(use_runtime, self.runtime)
        simulation.on_exit.append(self.kill)

    def _new_engine(self, name: str) -> Engine:
        engine = SimulatedEngine(name, self._simulation.loop, self._simulation.threads, self.process)
        self._engines.append(engine)
        return engine

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A coroutine of the program."""
        return self._simulation.loop.create_task(work, name=self.process.name, context=self.process.context.copy())

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call in a thread of the program, as `asyncio.to_thread` does."""
        return await self._simulation.threads.call(self.process.context.copy(), function, *args, **kwargs)

    def cut(self) -> None:
        """Its connections are lost; it may make new ones."""
        self._simulation.network.cut(self.process)

    def kill(self) -> None:
        """As SIGKILL does it; brokers learn that its connections are closed."""
        if not self.process.alive:
            return
        loop = self._simulation.loop
        self._simulation.trace.note(f"KILL {self.process.name}")
        loop.end(self.process)
        for engine in self._engines:
            loop.end(engine.process)
            engine.forget()
        self._simulation.threads.process_ended(self.process)
        self.cut()


class SimulatedEngine(Engine):
    """The simulation's loop in the place of an engine's thread."""

    def __init__(self, name: str, loop: SimulatedLoop, threads: SimulatedThreads, program: Process) -> None:
        self.name = name
        self.loop = loop
        self.busy = allocate_lock()
        # As if the thread were always at work: no other does anything in its place.
        self.busy.acquire()
        self.on_death = []
        # What the client does in the background, so that it can be ended and the program go on.
        self.process = program.context.run(Process, f"{program.name}'s {name}")
        self._simulated = loop
        self._threads = threads
        self._program = program
        self._tasks = Tasks(name)
        self._closed = False

    @property
    def is_current(self) -> bool:
        return self._simulated.is_current

    @property
    def thread_id(self) -> int:
        return self._simulated.thread_id

    def check_usable(self) -> None:
        if self._closed:
            raise ClosedError(f"this {self.name} is closed; make a new one")

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        if self.is_current:
            work.close()
            raise ConcurrentUseError(
                f"a coroutine in a simulation cannot wait for a {self.name}; call this with `SimulatedProgram.call`"
            )
        waiting = self.begin(work)
        done = allocate_lock()
        done.acquire()
        waiting.add_done_callback(lambda _: done.release())
        if not self._threads.acquire(done, _LONGEST_WAIT_S if timeout_s is None else timeout_s):
            waiting.cancel()
            raise RequestTimeout(f"not done within {timeout_s:g} s")
        try:
            return waiting.result()
        except concurrent.futures.CancelledError as problem:
            raise ClosedError(f"this {self.name} was closed meanwhile") from problem

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            self.check_usable()
        except ClosedError:
            work.close()
            raise
        return self.process.context.copy().run(asyncio.run_coroutine_threadsafe, work, self.loop)

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.check_usable()
        self.loop.call_soon(callback, *arguments, context=self.process.context.copy())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        ended = allocate_lock()
        ended.acquire()
        self._last = self.loop.create_task(self._end(), name=f"{self.name}: end", context=self._program.context.copy())
        self._last.add_done_callback(lambda _: ended.release())
        if not self.is_current:
            self._threads.acquire(ended, _LONGEST_WAIT_S)

    def forget(self) -> None:
        """The process is gone: nothing of the client is left to be ended with this one."""
        if not self._closed:
            self._closed = True
            for callback in self.on_death:
                callback(ClosedError(f"the process of this {self.name} has ended"))

    async def _end(self) -> None:
        await self._tasks.close()
        while others := self._simulated.tasks_of(self.process):
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        self.process.end()
