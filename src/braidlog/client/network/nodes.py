"""The brokers of a cluster by id: where they are, the connections to them, and when to call one again.

A broker may have several connections, one per purpose: a fetch is parked at the broker, and whatever is sent on the
same connection waits behind it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

from braidlog.client.errors import AuthenticationFailed, ClientError, ClosedError, NoConnection, SettingError
from braidlog.client.network.channel_builders import channel_builder_for
from braidlog.client.problem_log import ProblemLog
from braidlog.client.settings import Settings
from braidlog.core.clock import Clock, SystemClock
from braidlog.core.types import address_text
from braidlog.core.version import VERSION as BRAIDLOG_VERSION
from braidlog.net.outbound.backoff import ExponentialBackoff
from braidlog.net.outbound.connector import Address, Connector, SocketConnector
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection, open_connection

DEFAULT_PORT: Final = 9092
_BUFFERS: Final = ((socket.SO_SNDBUF, "send.buffer.bytes"), (socket.SO_RCVBUF, "receive.buffer.bytes"))

Open = Callable[[Address], Awaitable[PipelinedConnection]]


def parse_servers(servers: tuple[str, ...]) -> list[Address]:
    """`host:port` each; the port may be left out."""
    found: list[Address] = []
    for each in servers:
        if not isinstance(each, str):
            raise SettingError(f"bootstrap.servers: {each!r} is not HOST:PORT")
    for word in filter(None, (each.strip() for each in servers)):
        scheme, is_url, _ = word.partition("://")
        if is_url:
            raise SettingError(f"bootstrap.servers: {word!r} is not HOST:PORT; leave {scheme}:// away")
        host, colon, port = word.rpartition(":")
        if not colon or (word.startswith("[") and word.endswith("]")):
            found.append((word.strip("[]"), DEFAULT_PORT))
        elif host and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536:
            found.append((host.strip("[]"), int(port)))
        else:
            raise SettingError(f"bootstrap.servers: {word!r} is not HOST:PORT")
    if not found:
        raise SettingError("bootstrap.servers names no broker; give HOST:PORT, or several with commas between")
    return found


class Nodes:
    """Used on the engine's thread only."""

    def __init__(
        self,
        settings: Settings,
        *,
        random: Random | None = None,
        connector: Connector | None = None,
        clock: Clock | None = None,
        open_connection: Open | None = None,
    ) -> None:
        self.bootstrap = parse_servers(settings.items("bootstrap.servers"))
        self.request_timeout_s = settings.seconds("request.timeout.ms")
        # Failures on these connections, as they are logged.
        self.problems = ProblemLog(settings.kind, (clock or SystemClock()).monotonic)
        self._client_id = settings.text("client.id") or f"braidlog-{settings.kind}"
        self._setup_s = settings.seconds("socket.connection.setup.timeout.ms")
        self._idle_s = settings.seconds("connections.max.idle.ms")
        self._random = random or Random()
        self._backoff = ExponentialBackoff(
            settings.seconds("reconnect.backoff.ms"), settings.seconds("reconnect.backoff.max.ms"), self._random
        )
        self._channel_builder = channel_builder_for(settings, self._random)
        self._connector = connector or SocketConnector(
            self._channel_builder.secure,
            self._setup_s,
            explain=self._channel_builder.explained,
            # Kafka's small defaults would switch off the system's own tuning, so only a wish counts.
            buffer_sizes={
                option: settings.number(key)
                for option, key in _BUFFERS
                if settings.is_given(key) and settings.number(key) > 0
            },
            setting_of=partial(_setting_of, frozenset(self.bootstrap)),
        )
        self._open_connection = open_connection or self._open
        self._addresses: dict[int, Address] = {}
        # Those of the cluster that were given up together, until metadata names brokers again.
        self._unreachable: dict[int, Address] = {}
        self._slots: dict[tuple[int, str], ReconnectingConnection] = {}
        self._closed = False
        self._sweep: asyncio.TimerHandle | None = None
        # Hung up on the first request: they may want a login.
        self._may_require_sasl: set[str] = set()

    # Who is there

    @property
    def addresses(self) -> Mapping[int, Address]:
        return self._addresses

    def learn(self, addresses: Mapping[int, Address]) -> None:
        """What metadata says; connections to an address that is no longer a broker's are dropped."""
        for (node_id, purpose), slot in list(self._slots.items()):
            if node_id >= 0 and addresses.get(node_id) != self._addresses.get(node_id):
                slot.close()
                del self._slots[(node_id, purpose)]
        self._addresses = dict(addresses)
        if addresses:
            self._unreachable = {}

    def learn_one(self, node_id: int, address: Address) -> None:
        """Where a coordinator is said to be: it may have registered, or moved, after the metadata was read.

        One that is connected has not moved: then the word of a broker that lags behind does no harm.
        """
        connected = any(each == node_id and slot.ready is not None for (each, _), slot in self._slots.items())
        if self._addresses.get(node_id) != address and not connected:
            self.learn({**self._addresses, node_id: address})

    def rebootstrap(self) -> None:
        """Start from `bootstrap.servers` again: none of the known brokers can be reached."""
        unreachable = {**self._unreachable, **self._addresses}
        self.learn({})
        self._unreachable = unreachable

    def is_known(self, node_id: int) -> bool:
        return node_id < 0 or node_id in self._addresses

    def is_reachable(self, node_id: int) -> bool:
        """Whether there is a connection, or no failure that a pause follows."""
        slot = self._slots.get((node_id, ""))
        return slot is None or slot.failures == 0

    # Connections

    def ready(self, node_id: int, purpose: str = "") -> PipelinedConnection | None:
        """The connection where there is one already."""
        slot = self._slots.get((node_id, purpose))
        return None if slot is None else slot.ready

    async def connection(self, node_id: int, purpose: str = "") -> PipelinedConnection:
        """The connection to a broker, made when there is none; a broker that just failed is given a pause first."""
        if self._closed:
            raise ClosedError("the client is closed")
        slot = self._slots.get((node_id, purpose))
        if slot is None:
            slot = ReconnectingConnection(f"broker {node_id}", partial(self._establish, node_id), self._backoff)
            slot.on_broken = self._on_broken
            self._slots[(node_id, purpose)] = slot
        with suppress(ClosedError):
            return await slot.get()
        # Dropped meanwhile.
        if self._closed:
            raise ClosedError("the client is closed")
        if node_id in self._unreachable:
            raise self._absent(node_id)
        raise NoConnection(f"broker {node_id} moved, or left the cluster, while it was being called")

    async def any(self) -> PipelinedConnection:
        """A connection to whichever broker answers, the least busy of the open ones first."""
        if self._closed:
            raise ClosedError("the client is closed")
        is_open = [connection for slot in self._slots.values() if (connection := slot.ready) is not None]
        if is_open:
            # Among equals any: one broker that lags behind must not be the only one to be asked.
            return min(is_open, key=lambda each: (each.in_flight, self._random.random()))
        known = self._known()
        self._random.shuffle(known)
        known.sort(key=lambda node_id: self._slots[(node_id, "")].failures if (node_id, "") in self._slots else 0)
        problems: list[str] = []
        for node_id in known:
            try:
                return await self.connection(node_id)
            except AuthenticationFailed:
                raise
            except ClientError as problem:
                problems.append(str(problem))
        raise NoConnection("; ".join(dict.fromkeys(problems)))

    def last_problem(self, node_id: int | None = None) -> ClientError | None:
        """Why a broker, or any of them, could not be connected to when that was last tried."""
        tried = self._known() if node_id is None else [node_id]
        slots = [self._slots.get((each, "")) for each in tried]
        return next((slot.problem for slot in slots if slot is not None and slot.problem is not None), None)

    def _known(self) -> list[int]:
        """Before metadata names brokers they are those of bootstrap.servers: -1, -2, …"""
        return list(self._addresses) or [-1 - at for at in range(len(self.bootstrap))]

    async def _establish(self, node_id: int) -> PipelinedConnection:
        address = self.bootstrap[-1 - node_id] if node_id < 0 else self._addresses.get(node_id)
        if address is None:
            raise self._absent(node_id)
        try:
            connection = await self._open_connection(address)
        except NoConnection as problem:
            if node_id >= 0 and address not in self.bootstrap:
                raise NoConnection(
                    f"{problem} Broker {node_id} tells clients to connect there: if that is not how clients reach it, "
                    "set its advertised.listeners (`braidlog doctor` explains)"
                ) from problem
            raise
        if self._sweep is None and self._idle_s > 0:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_s, self._close_idle)
        return connection

    def _absent(self, node_id: int) -> NoConnection:
        """Why a broker without an address cannot be called."""
        address = self._unreachable.get(node_id)
        if address is None:
            return NoConnection(f"there is no broker {node_id} in the cluster now")
        return NoConnection(f"broker {node_id} is unreachable at {address_text(*address)}; is it running?")

    def _on_broken(self, closed: PipelinedConnection) -> None:
        if closed.hint:
            self._may_require_sasl.add(closed.address)

    async def _open(self, address: Address) -> PipelinedConnection:
        return await open_connection(self._connector, address, self._client_id, self._negotiate_and_authenticate)

    async def _negotiate_and_authenticate(self, connection: PipelinedConnection) -> None:
        await connection.negotiate(BRAIDLOG_VERSION, min(self.request_timeout_s, self._setup_s))
        await self._channel_builder.authenticate(connection)
        if connection.hint and connection.address in self._may_require_sasl:
            from braidlog.net.outbound.listener_probe import check_sasl_not_required

            await check_sasl_not_required(connection, self._setup_s)
            self._may_require_sasl.discard(connection.address)

    def _close_idle(self) -> None:
        """Before the broker does it, which hangs up in the middle of whatever comes next."""
        loop = asyncio.get_running_loop()
        self._sweep = None
        soonest: float | None = None
        for slot in self._slots.values():
            connection = slot.ready
            if connection is None:
                continue
            due = (loop.time() if connection.in_flight else connection.last_used) + self._idle_s
            if due <= loop.time():
                connection.close()
            else:
                soonest = due if soonest is None else min(soonest, due)
        if soonest is not None and not self._closed:
            self._sweep = loop.call_at(soonest, self._close_idle)

    # End

    def close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()


def _setting_of(bootstrap: frozenset[Address], address: Address) -> str:
    return "bootstrap.servers" if address in bootstrap else ""
