"""The network of a simulation under real clients: their connector, and transports over connections in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from braidlog.core.types import address_text
from braidlog.net.outbound.connector import Address
from braidlog.net.outbound.errors import ClientError, NoConnection
from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK, Piece
from braidlog.testing.simulated.connection import ConnectionLost, SimulatedConnection
from braidlog.testing.simulated.simulation import Simulation

_PEER: Final = "simulated:9092"


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
