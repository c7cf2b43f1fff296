"""A network in memory: brokers listen at host:port, clients connect to those addresses.

A stream of bytes knows no loss and no duplicates: what is lost is a connection, and whoever asked asks again on the
next one. Links between two hosts can be slow or blocked; what then comes late may overtake nothing on its own
connection, but all on others.
"""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import Final, Protocol

from braidlog.core.types import address_text
from braidlog.net.outbound.connector import Address
from braidlog.net.outbound.errors import ClientError, ConnectionRefused, NoConnection
from braidlog.testing.simulated.connection import Link, SimulatedConnection, Trace, WireTap
from braidlog.testing.simulated.loop import Process, SimulatedLoop

# How long a connection to a host that does not answer is tried, at most.
_SETUP_S: Final = 2.0


class Listener(Protocol):
    def accept(self, connection: SimulatedConnection) -> bool:
        """Give the connection its other end; false where the connection is refused."""
        ...


class SimulatedNetwork:
    def __init__(self, loop: SimulatedLoop, random: Random, trace: Trace) -> None:
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
        # By the hosts from which and to which they lead.
        self._links: dict[tuple[str, str], Link] = {}

    def listen(self, address: Address, listener: Listener) -> None:
        self._listeners[address] = listener

    def link(self, source: str, target: str) -> Link:
        """From one host to another; programs are hosts by their names."""
        return self._links.setdefault((source, target), Link())

    def block(self, source: str, target: str) -> None:
        """From now on nothing arrives; what is sent meanwhile does once it is unblocked."""
        self.link(source, target).blocked = True

    def unblock(self, source: str, target: str) -> None:
        self.link(source, target).unblock()

    async def reached(self, source: str, target: str) -> bool:
        """Packets get there and back; where they do not, it takes a while to find out."""
        there, back = self.link(source, target), self.link(target, source)
        if there.blocked or back.blocked:
            await asyncio.sleep(self._random.random() * _SETUP_S)
        return not (there.blocked or back.blocked)

    def connect(self, client: Process, address: Address, host: str = "") -> SimulatedConnection | None:
        """None where nothing listens, or the connection is refused. `host` is the client's, if not its name."""
        listener = self._listeners.get(address)
        if listener is None or (self.only_client is not None and client is not self.only_client):
            return None
        name = f"{client.name} connection {next(self._numbers)}"
        connection = SimulatedConnection(
            self._loop, self._random, client, name, address_text(*address), self._trace, self.tap,
            self.link(host or client.name, address[0]), self.link(address[0], host or client.name),
        )  # fmt: skip
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

    def cut_to(self, address: Address) -> None:
        """All connections that lead there now are lost."""
        for connection in self._connections:
            if connection.peer == address_text(*address):
                connection.cut()


class SimulatedConnector:
    """The way of one client into the network, as `net.outbound.connector.Connector`."""

    def __init__(self, network: SimulatedNetwork, client: Process, host: str = "") -> None:
        self._network = network
        self._client = client
        self._host = host or client.name

    async def connect(self, address: Address) -> SimulatedConnection:
        if not await self._network.reached(self._host, address[0]):
            raise NoConnection(f"nothing is heard of {address_text(*address)}; is its network up?")
        connection = self._network.connect(self._client, address, self._host)
        if connection is None:
            raise ConnectionRefused(f"no broker answers at {address_text(*address)}; is it running?")
        return connection

    async def explain(self, address: Address, problem: NoConnection) -> ClientError:
        return problem
