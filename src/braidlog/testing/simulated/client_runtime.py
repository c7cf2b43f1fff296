"""A simulation as the runtime of real clients: its clock, its random numbers, its loop, its network."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
from _thread import allocate_lock
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from braidlog.client.network.engine import Engine
from braidlog.client.runtime import ClientRuntime
from braidlog.core.tasks import Tasks
from braidlog.core.types import address_text
from braidlog.net.outbound.connector import Address
from braidlog.net.outbound.errors import ClientError, ClosedError, NoConnection, RequestTimeout
from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK, Piece
from braidlog.testing.simulated.connection import ConnectionLost, SimulatedConnection
from braidlog.testing.simulated.loop import SimulatedLoop
from braidlog.testing.simulated.simulation import Simulation

_PEER: Final = "simulated:9092"
# What no call of a program takes.
_LONGEST_WAIT_S: Final = 600.0


T = TypeVar("T")


class SimulatedEngine(Engine):
    """The simulation's loop in the place of a thread: it runs while a program waits, and rests while one acts."""

    def __init__(self, name: str, loop: SimulatedLoop) -> None:
        self.name = name
        self.loop = loop
        self.busy = allocate_lock()
        self.on_death = []
        self._tasks = Tasks(name)
        self._closed = False

    @property
    def is_current(self) -> bool:
        return self.loop.is_running()

    def check_usable(self) -> None:
        if self._closed:
            raise ClosedError(f"this {self.name} is closed; make a new one")

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        async def bounded() -> T:
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    return await work
            except TimeoutError as late:
                if not limit.expired():
                    raise
                raise RequestTimeout(f"not done within {timeout_s:g} s") from late

        self.check_usable()
        return self.loop.run_until_complete(bounded())

    @property
    def thread_id(self) -> int:
        # That of no program: a call that waits for the loop is never one of its callbacks.
        return -1

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Waits at once, since the loop rests whenever the program goes on."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            done.set_result(self.run(work, _LONGEST_WAIT_S))
        except Exception as problem:
            done.set_exception(problem)
        return done

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.check_usable()
        self.loop.call_soon(callback, *arguments)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.loop.run_until_complete(self._tasks.close())


def client_runtime(simulation: Simulation) -> ClientRuntime:
    """For clients in the simulation's own thread.

    Calls that wait by their engine run the loop meanwhile, as all of Admin do. Those that would wait on a lock (a
    delivery's result, a poll with a timeout) must not have to: run the loop until there is something for them.
    """
    loop = simulation.loop
    return ClientRuntime(
        clock=simulation.clock,
        random=simulation.random,
        new_engine=lambda name: SimulatedEngine(name, loop),
        connector=SimulatedConnector(simulation),
    )


class _TransportConnection(SimulatedConnection):
    """Hands bytes on as they come: the transport's user cuts them into frames."""

    transport: SimulatedTransport

    def _receive(self, data: bytes) -> None:
        self.transport.on_received(data)

    def _lose(self, reason: bytes) -> None:
        if self.lost is None:
            super()._lose(reason)
            self.transport.on_received(b"")


class SimulatedTransport:
    """The client's end of a simulated connection, as `net.outbound.transport.Transport`."""

    def __init__(self, connection: _TransportConnection) -> None:
        self._connection = connection
        self._received = bytearray()
        self._on_readable: Callable[[], None] | None = None
        self._on_lost: Callable[[OSError], None] | None = None
        connection.transport = self

    @property
    def unsent(self) -> int:
        return 0

    @property
    def is_direct(self) -> bool:
        return False

    @property
    def peer(self) -> str:
        return _PEER

    def start(self, on_readable: Callable[[], None], on_lost: Callable[[OSError], None]) -> None:
        self._on_readable = on_readable
        self._on_lost = on_lost

    def on_received(self, data: bytes) -> None:
        """None: the connection is lost."""
        self._received += data
        if self._on_readable is not None:
            self._on_readable()

    def receive_into(self, view: memoryview) -> int:
        count = min(len(view), len(self._received))
        if count == 0:
            return WOULD_BLOCK if self._connection.lost is None else ENDED
        view[:count] = self._received[:count]
        del self._received[:count]
        return count

    def expect(self, size: int) -> None:
        pass

    def send(self, pieces: Sequence[Piece]) -> None:
        try:
            self._connection.send(b"".join(pieces))
        except ConnectionLost as lost:
            # Later, as a socket does it: the sender is in the middle of something.
            self._connection.call_later(0.0, partial(self._lose, ConnectionResetError(str(lost))))

    def _lose(self, problem: OSError) -> None:
        if self._on_lost is not None:
            self._on_lost(problem)

    def close(self) -> None:
        self._on_readable = self._on_lost = None
        self._connection.hang_up()


class SimulatedConnector:
    """Every address leads to the simulation's broker, while it is up."""

    def __init__(self, simulation: Simulation) -> None:
        self._broker = simulation.broker
        self._names = itertools.count(1)

    async def connect(self, address: Address) -> SimulatedTransport:
        try:
            connection = self._broker.connect(f"client connection {next(self._names)}", _TransportConnection)
        except ConnectionLost as lost:
            raise NoConnection(f"no broker answers at {address_text(*address)} ({lost}); is it running?") from lost
        return SimulatedTransport(connection)

    async def explain(self, address: Address, problem: NoConnection) -> ClientError:
        return problem
