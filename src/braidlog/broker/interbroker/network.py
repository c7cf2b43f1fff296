"""Connections to other brokers over the inter-broker listener, one for each purpose.

A request that a peer parks (a fetch) would hold up whatever follows it on the same connection, so each purpose has its
own: control, controller, fetch, coordinator.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from braidlog import __version__
from braidlog.cluster.image import BrokerInfo
from braidlog.config.broker import BrokerSettings
from braidlog.core.types import BrokerId
from braidlog.net.outbound.backoff import ExponentialBackoff
from braidlog.net.outbound.connector import Connector, SocketConnector
from braidlog.net.outbound.errors import NoConnection
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection, open_connection
from braidlog.net.outbound.transport import PlainTransport, Transport

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

Authenticate = Callable[[PipelinedConnection], Awaitable[None]]


class InterBrokerNetwork:
    """A simulation gives a connector of its own; `authenticate` logs in where the listener asks for it."""

    def __init__(
        self,
        broker_id: BrokerId,
        listener: str,
        settings: Callable[[], BrokerSettings],
        random: Random,
        connector: Connector | None = None,
        authenticate: Authenticate | None = None,
    ) -> None:
        self._broker_id = broker_id
        self.listener = listener
        self._settings = settings
        self._backoff = ExponentialBackoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, random)
        current = settings()
        self._setup_s = current.get_int("socket.connection.setup.timeout.ms") / 1000
        self._connector = connector or _plaintext_connector(self._setup_s)
        self._authenticate = authenticate

    @property
    def control_timeout_s(self) -> float:
        settings = self._settings()
        return settings.get_int("controller.socket.timeout.ms") / 1000

    @property
    def request_timeout_s(self) -> float:
        settings = self._settings()
        return settings.get_int("request.timeout.ms") / 1000

    def connect(self, broker: BrokerInfo, purpose: str) -> ReconnectingConnection:
        """Nothing is sent before the connection is first asked for."""

        async def open_to_broker() -> PipelinedConnection:
            endpoint = broker.endpoint(self.listener)
            if endpoint is None:
                raise NoConnection(
                    f"broker {broker.id} has no listener {self.listener}, over which brokers reach each other here; "
                    "inter.broker.listener.name has to be the same on all of them"
                )
            client_id = f"broker-{self._broker_id}-{purpose}"
            return await open_connection(self._connector, (endpoint.host, endpoint.port), client_id, self._prepare)

        return ReconnectingConnection(f"broker {broker.id} ({purpose})", open_to_broker, self._backoff)

    async def _prepare(self, connection: PipelinedConnection) -> None:
        await connection.negotiate(__version__, self._setup_s)
        if self._authenticate is not None:
            await self._authenticate(connection)


def _plaintext_connector(setup_s: float) -> Connector:
    async def secure(loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
        return PlainTransport(loop, connected)

    return SocketConnector(secure, setup_s)
