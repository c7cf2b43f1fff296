"""A network in memory: brokers listen at host:port, clients connect to those addresses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Protocol

from braidlog.core.types import address_text
from braidlog.net.outbound.connector import Address
from braidlog.net.outbound.errors import ClientError, NoConnection
from braidlog.testing.simulated.connection import SimulatedConnection, WireTap
from braidlog.testing.simulated.loop import Process, SimulatedLoop


class Listener(Protocol):
    def accept(self, connection: SimulatedConnection) -> bool:
        """Give the connection its other end; false where the connection is refused."""
        ...


class SimulatedNetwork:
    def __init__(self, loop: SimulatedLoop, random: Random, trace: Callable[[str], None]) -> None:
        # Sees the frames of connections that are made from now on.
        self.tap: WireTap | None = None
        # While it is set: the only client that is let in.
        self.only_client: Process | None = None
        self._loop = loop
        self._random = random
        self._trace = trace
        self._listeners: dict[Address, Listener] = {}
        self._connections: list[SimulatedConnection] = []
        self._numbers = itertools.count(1)

    def listen(self, address: Address, listener: Listener) -> None:
        self._listeners[address] = listener

    def connect(self, client: Process, address: Address) -> SimulatedConnection | None:
        """None where nothing listens, or the connection is refused."""
        listener = self._listeners.get(address)
        if listener is None or (self.only_client is not None and client is not self.only_client):
            return None
        name = f"{client.name} connection {next(self._numbers)}"
        connection = SimulatedConnection(
            self._loop, self._random, client, name, address_text(*address), self._trace, self.tap
        )
        if not listener.accept(connection):
            return None
        self._connections = [each for each in self._connections if each.lost is None]
        self._connections.append(connection)
        return connection

    def cut(self, client: Process) -> None:
        """All connections that the client has now are lost."""
        for connection in self._connections:
            if connection.client is client:
                connection.cut()


class SimulatedConnector:
    """The way of one client into the network, as `net.outbound.connector.Connector`."""

    def __init__(self, network: SimulatedNetwork, client: Process) -> None:
        self._network = network
        self._client = client

    async def connect(self, address: Address) -> SimulatedConnection:
        connection = self._network.connect(self._client, address)
        if connection is None:
            raise NoConnection(f"no broker answers at {address_text(*address)}; is it running?")
        return connection

    async def explain(self, address: Address, problem: NoConnection) -> ClientError:
        return problem
