"""Brokers in a world that a seed decides: when threads run, how packets travel, what a power cut leaves behind.

One `Random(seed)` drives everything and nothing else does, so a seed replays exactly, clients included: `trace` holds
every operation of the disks, every delivery and every line that was logged, and is the same for the same seed.

Brokers listen at host:port. `broker` is the first; `add_broker` adds others, each with a disk of its own, on the same
clock and network. Those whose settings name a `zookeeper.connect` are a cluster on `zookeeper`; see `cluster`.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from braidlog.broker.broker import Broker
from braidlog.broker.environment import Environment, Executors
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import Clock
from braidlog.core.types import Endpoint
from braidlog.net.outbound.connector import Address
from braidlog.storage.cleaner.pass_runner import InlinePassRunner
from braidlog.storage.dirs.directory_lock import NoLock
from braidlog.testing.simulated.connection import SimulatedConnection
from braidlog.testing.simulated.disk import MemoryDisk
from braidlog.testing.simulated.loop import Process, SimulatedClock, SimulatedExecutor, SimulatedLoop, current_process
from braidlog.testing.simulated.memory_files import JournalOnFiles, MemoryFiles
from braidlog.testing.simulated.network import SimulatedConnector, SimulatedNetwork
from braidlog.testing.simulated.threads import SimulatedThreads
from braidlog.testing.simulated.zookeeper import SimulatedZooKeeper

_THREADS: Final = 2
_MEMORY_BYTES: Final = 1 << 30
# Few enough open files that some are closed and opened again.
_HANDLES: Final = 24
_DRAIN_S: Final = 5.0

SETTINGS: Final = {
    "broker.id": "1",
    "log.dirs": "/data",
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "2000",
    "log.flush.scheduler.interval.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.flush.start.offset.checkpoint.interval.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "1500",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
}


# Where the first broker listens.
ADDRESS: Final[Address] = ("simulated", 9092)
SERVERS: Final = "simulated:9092"


class BrokerEnded(Exception):
    """The broker's process ended while it was waited for."""


# When something happened, in which process, and the parts of the line that says what.
_Entry: TypeAlias = tuple[float, Process | None, tuple[object, ...]]


class Trace:
    """What happened, as lines of which the last ones are kept, or all of them from `keep_all` on.

    Operations of disks and bytes on their way are details; all else is a story that can be read.
    """

    def __init__(self, loop_time: Callable[[], float], kept: int = 400) -> None:
        self._time = loop_time
        self._keeps_all = False
        self._last: deque[_Entry] = deque(maxlen=kept)
        self._story: deque[_Entry] = deque(maxlen=kept)
        self.count = 0

    def note(self, line: str) -> None:
        self.detail(line)
        self._story.append(self._last[-1])

    def detail(self, *parts: object) -> None:
        """A line of parts that never change; they are put together where it is read, as thousands never are."""
        self.count += 1
        self._last.append((self._time(), current_process(), parts))

    @property
    def last(self) -> list[str]:
        return list(map(_line, self._last))

    @property
    def story(self) -> list[str]:
        return list(map(_line, self._story))

    def keep_all(self) -> None:
        """Before anything happened."""
        self._keeps_all = True
        self._last = deque()

    def digest(self) -> str:
        """Of all lines."""
        if not self._keeps_all:
            raise ValueError("the lines of this trace are not kept; call keep_all before anything happens")
        return hashlib.sha256("\n".join(self.last).encode("utf-8", "backslashreplace")).hexdigest()


def _line(entry: _Entry) -> str:
    at_s, process, parts = entry
    who = "" if process is None else f"{process.name}: "
    return f"{at_s:.6f} {who}{' '.join(map(str, parts))}"


class _LogLines(logging.Handler):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.INFO)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname} {record.name}: {record.getMessage()}"
        self._simulation.trace.note(line)
        if record.levelno >= logging.ERROR:
            problem = record.exc_info[1] if record.exc_info else None
            self._simulation.errors.append((line, problem))


class Simulation:
    """Use as a context manager; `run` a coroutine in it that starts, uses and breaks `broker`."""

    def __init__(self, seed: int, settings: Mapping[str, str] | None = None, address: Address = ADDRESS) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = SimulatedLoop(self.random, on_problem=self._problem)  # type: ignore[abstract]
        self.clock = SimulatedClock(self.loop)
        self.trace = Trace(self.loop.time)
        self.network = SimulatedNetwork(self.loop, self.random, self.trace.detail)
        self.zookeeper = SimulatedZooKeeper(self.loop, self.random, self.clock, trace=self.trace.note)
        self.threads = SimulatedThreads(self.loop)
        # What belongs to no broker ends with the simulation.
        self.on_exit: list[Callable[[], None]] = []
        # ERROR lines of the log, with their exceptions.
        self.errors: list[tuple[str, BaseException | None]] = []
        self.brokers: list[SimulatedBroker] = []
        self.loop.on_process_ended = self._process_ended
        self.broker = self.add_broker(settings or {}, address)
        self.disk = self.broker.disk
        self._log_lines = _LogLines(self)

    def add_broker(self, settings: Mapping[str, str], address: Address = ADDRESS) -> SimulatedBroker:
        """Another broker with a disk of its own, at this address; it has to be started."""
        broker = SimulatedBroker(self, {**SETTINGS, **settings}, address)
        self.brokers.append(broker)
        return broker

    def __enter__(self) -> Simulation:
        logger = logging.getLogger("braidlog")
        self._before = (logger.level, logger.propagate)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(self._log_lines)
        # Finalizers would run whenever the collector does, which no seed decides.
        self._collected = gc.isenabled()
        gc.disable()
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("braidlog")
        logger.removeHandler(self._log_lines)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]
        for broker in self.brokers:
            broker.kill()
        for end in self.on_exit:
            end()
        self.threads.close()
        self.loop.close()
        if self._collected:
            gc.enable()

    def run(self, work: Awaitable[None]) -> None:
        self.loop.run_until_complete(work)

    def new_id(self) -> bytes:
        return self.random.randbytes(16)

    def _process_ended(self, process: Process) -> None:
        for broker in self.brokers:
            broker.process_ended(process)

    def _problem(self, context: dict[str, Any]) -> None:
        self.trace.note(f"PROBLEM {context.get('exception')!r}")


class _SkewedClock:
    """Of a machine whose clock is not set well."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms
        self.monotonic = clock.monotonic

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._ahead_ms


class SimulatedBroker:
    """One broker over its lives: each is a process of its own on the same disk."""

    def __init__(self, simulation: Simulation, settings: Mapping[str, str], address: Address) -> None:
        self.lives = 0
        self.address = address
        # How far the clock of its machine is ahead.
        self.skew_ms = 0
        self.disk = MemoryDisk(simulation.random, simulation.clock, simulation.trace.detail)
        # Data directories are there before a broker is, as mount points are.
        for directory in ("/data", "/more"):
            MemoryFiles(self.disk).mkdir(directory)
        MemoryFiles(self.disk).sync_dir("/")
        self._simulation = simulation
        self._settings = BrokerSettings(settings)
        self._process: Process | None = None
        self._broker: Broker | None = None
        self._connections: list[SimulatedConnection] = []
        self._waited_for: asyncio.Future[None] | None = None
        self._down_waiters: list[asyncio.Future[None]] = []
        # From the beginning of a clean stop on; it serves until its leaders are moved.
        self.is_stopping = False
        # Whether connections are accepted.
        self._listening = False
        self.name = f"broker {self._settings.broker_id}"
        simulation.network.listen(address, self)

    @property
    def is_up(self) -> bool:
        return self._broker is not None and self._broker.ready and self._process is not None and self._process.alive

    @property
    def is_down(self) -> bool:
        return self._process is None

    async def wait_until_down(self) -> None:
        if self._process is not None:
            waiter: asyncio.Future[None] = self._simulation.loop.create_future()
            self._down_waiters.append(waiter)
            await waiter

    @property
    def is_paused(self) -> bool:
        return self._process is not None and self._process.held is not None

    @property
    def parts(self) -> Broker:
        """What runs inside, for checks that look at it; not for calling."""
        assert self._broker is not None, "the broker is not running"
        return self._broker

    def accept(self, connection: SimulatedConnection) -> bool:
        if not self._listening or self._process is None or not self._process.alive:
            return False
        broker, process = self.parts, self._process
        assert process is not None
        connection.accept(process, broker.dispatch, broker.round, broker.memory)
        self._connections.append(connection)
        return True

    # Life

    async def start(self) -> None:
        """Raises what starting raised, BrokerEnded if a fault ended the process on the way."""
        assert self._process is None, "it runs already"
        simulation = self._simulation
        self.lives += 1
        simulation.trace.note(f"START {self.name} for the {self.lives}. time")
        process = self._process = Process(f"{self.name}.{self.lives}")
        files = MemoryFiles(self.disk, process)
        environment = Environment(
            clock=_SkewedClock(simulation.clock, self.skew_ms) if self.skew_ms else simulation.clock,
            files=files,
            random=simulation.random,
            executors=Executors(lambda directory: SimulatedExecutor(_THREADS)),
            journal_files=lambda directory: JournalOnFiles(files, directory),
            lock=lambda directory: NoLock(),
            new_id=simulation.new_id,
            passes=lambda used: InlinePassRunner(used, simulation.clock),
            memory_bytes=_MEMORY_BYTES,
            cpus=2,
            connector=SimulatedConnector(simulation.network, process, self.address[0]),
            open_session=lambda: simulation.zookeeper.open_session(self.name),
        )
        broker = self._broker = Broker(self._settings, environment, on_fatal=self._fatal)
        broker.handles.capacity = _HANDLES
        try:
            await self._inside(self._start(broker))
        except BrokerEnded:
            raise
        except Exception:
            self.kill()
            raise

    async def _start(self, broker: Broker) -> None:
        await broker.start((Endpoint("PLAINTEXT", *self.address),), {"PLAINTEXT": "PLAINTEXT"})
        self._listening = True
        await broker.wait_until_announced()

    async def stop(self) -> None:
        """As SIGTERM does it: requests in progress finish, logs are closed, the stop is marked as clean."""
        assert not self.is_stopping, "it stops already"
        self.is_stopping = True
        self._simulation.trace.note(f"STOP {self.name}")
        await self._inside(self._stop(self.parts))
        self.kill()

    async def _stop(self, broker: Broker) -> None:
        await broker.leave()
        self._listening = False
        await broker.drain(lambda: sum(each.busy for each in self._connections), _DRAIN_S)
        await broker.stop()

    def kill(self) -> None:
        """As SIGKILL does it: the process is gone, what it wrote is there."""
        if self._process is not None:
            self._simulation.trace.note(f"KILL {self.name}")
            process = self._process
            self._simulation.loop.end(process)
            self.process_ended(process)

    def cut_power(self) -> None:
        """The process is gone, and of what was not synced only some."""
        self.kill()
        self._simulation.trace.note(f"POWER CUT of {self.name}")
        self.disk.cut_power()

    def wipe_disk(self) -> None:
        """The process is gone, and its next life begins with an empty disk."""
        self.kill()
        self._simulation.trace.note(f"WIPED DISK of {self.name}")
        self.disk.wipe()

    def pause(self, seconds: float) -> None:
        """As SIGSTOP does it, and SIGCONT after so long."""
        if self._process is not None:
            self._simulation.trace.note(f"PAUSE {self.name} for {seconds:.1f} s")
            self._simulation.loop.pause(self._process, seconds)

    async def _inside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the broker's process; wait from outside of it."""
        loop = self._simulation.loop
        process = self._process
        assert process is not None
        outcome: asyncio.Future[None] = loop.create_future()
        self._waited_for = outcome
        loop.create_task(_tell(work, outcome), name="simulated broker", context=process.context.copy())
        try:
            await outcome
        finally:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                # The process was killed in the same turn, before any of it ran.
                work.close()

    def process_ended(self, process: Process) -> None:
        if process is not self._process:
            return
        self._simulation.trace.note(f"ENDED {process.name}")
        self._process = None
        self._broker = None
        self.is_stopping = False
        self._listening = False
        for each in self._connections:
            each.broker_ended()
        self._connections = []
        if self._waited_for is not None and not self._waited_for.done():
            self._waited_for.set_exception(BrokerEnded(process.name))
        self._waited_for = None
        waiters, self._down_waiters = self._down_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _fatal(self, problem: Exception) -> None:
        """The broker gives up: a real one stops; here it ends at once."""
        simulation = self._simulation
        simulation.trace.note(f"FATAL {problem}")
        process = self._process
        if process is not None:
            process.end()


async def _tell(work: Coroutine[Any, Any, None], outcome: asyncio.Future[None]) -> None:
    try:
        await work
    except Exception as problem:
        if not outcome.done():
            outcome.set_exception(problem)
    else:
        if not outcome.done():
            outcome.set_result(None)
