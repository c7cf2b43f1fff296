"""Connections to other brokers over the inter-broker listener, one for each purpose.

A request that a peer parks (a fetch) would hold up whatever follows it on the same connection, so each purpose has its
own: control, controller, fetch, coordinator.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from braidlog.cluster.image import BrokerInfo
from braidlog.cluster.inter_broker_protocol import newest_versions
from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import PLAINTEXT
from braidlog.core.errors import UserError
from braidlog.core.types import BrokerId
from braidlog.core.version import VERSION as BRAIDLOG_VERSION
from braidlog.net.outbound.backoff import ExponentialBackoff
from braidlog.net.outbound.connector import Connector, SocketConnector
from braidlog.net.outbound.errors import NoConnection
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection, open_connection
from braidlog.net.outbound.transport import PlainTransport, Transport

if TYPE_CHECKING:
    from braidlog.client.network.channel_builders import ChannelBuilder

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"
_TLS_KEYS: Final = (
    "ssl.enabled.protocols", "ssl.protocol", "ssl.cipher.suites", _IDENTIFICATION, "ssl.truststore.certificates",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password",
)  # fmt: skip


class InterBrokerNetwork:
    """A simulation gives a connector of its own."""

    def __init__(
        self,
        broker_id: BrokerId,
        listener: str,
        settings: Callable[[], BrokerSettings],
        random: Random,
        connector: Connector | None = None,
    ) -> None:
        self._broker_id = broker_id
        self.listener = listener
        self._settings = settings
        self._backoff = ExponentialBackoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, random)
        current = settings()
        self._newest_versions = newest_versions(current.get_str("inter.broker.protocol.version"))
        self._setup_s = current.get_int("socket.connection.setup.timeout.ms") / 1000
        # TLS and logins, where the listener speaks them; replaced when keys or passwords change, for new connections.
        self.channels: ChannelBuilder | None = None
        self._connector = connector or SocketConnector(self._secure, self._setup_s)

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
        return self.connect_to(broker.id, lambda: broker, purpose)

    def connect_to(
        self, broker_id: BrokerId, find: Callable[[], BrokerInfo | None], purpose: str
    ) -> ReconnectingConnection:
        """As `connect`, to wherever the broker is each time that a connection is made."""

        async def open_to_broker() -> PipelinedConnection:
            broker = find()
            if broker is None:
                raise NoConnection(f"broker {broker_id} is not announced by the controller; is it running?")
            endpoint = broker.endpoint(self.listener)
            if endpoint is None:
                raise NoConnection(
                    f"broker {broker.id} has no listener {self.listener}, over which brokers reach each other here; "
                    "inter.broker.listener.name has to be the same on all of them"
                )
            client_id = f"broker-{self._broker_id}-{purpose}"
            return await open_connection(self._connector, (endpoint.host, endpoint.port), client_id, self._prepare)

        return ReconnectingConnection(f"broker {broker_id} ({purpose})", open_to_broker, self._backoff)

    async def _prepare(self, connection: PipelinedConnection) -> None:
        await connection.negotiate(BRAIDLOG_VERSION, self._setup_s)
        connection.limit_versions(self._newest_versions)
        if self.channels is not None:
            await self.channels.authenticate(connection)

    async def _secure(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
        if self.channels is None:
            return PlainTransport(loop, connected)
        return await self.channels.secure(loop, connected, host)


def inter_broker_channels(
    settings: BrokerSettings, listener: str, protocol: str, random: Random
) -> ChannelBuilder | None:
    """How this broker shows the others who it is, as the settings of the listener between them say; none in clear text.

    Raises UserError that names the setting to change.
    """
    if protocol == PLAINTEXT:
        return None
    # The broker is a client like any other here.
    from braidlog.client.network.channel_builders import channel_builder_for
    from braidlog.client.settings import ADMIN, Settings

    config: dict[str, Any] = {
        "security.protocol": protocol,
        "request.timeout.ms": settings.get_int("request.timeout.ms"),
        "socket.connection.setup.timeout.ms": settings.get_int("socket.connection.setup.timeout.ms"),
    }
    if protocol.endswith("SSL"):
        config.update(_tls(settings, listener))
    if protocol.startswith("SASL_"):
        config.update(_login(settings, listener))
    try:
        return channel_builder_for(Settings.of(ADMIN, config), random)
    except UserError as problem:
        raise UserError(f"the listener {listener} between brokers: {problem}") from problem


def _login(settings: BrokerSettings, listener: str) -> dict[str, Any]:
    mechanism = str(settings.get_for_listener(listener, "sasl.mechanism.inter.broker.protocol"))
    enabled = settings.get_for_listener(listener, "sasl.enabled.mechanisms")
    if not isinstance(enabled, tuple) or mechanism not in enabled:
        raise UserError(
            f"sasl.mechanism.inter.broker.protocol is {mechanism}, which sasl.enabled.mechanisms of the listener "
            f"{listener} does not have; set the one to one of the other"
        )
    jaas = settings.get_for_mechanism(listener, mechanism, "sasl.jaas.config")
    if jaas is None:
        raise UserError(
            f"brokers log in to each other with {mechanism} on the listener {listener}: set "
            f'{known.mechanism_key(listener, mechanism, "sasl.jaas.config")} with username="…" password="…"'
        )
    config: dict[str, Any] = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    if mechanism == "OAUTHBEARER":
        url = settings.get_for_mechanism(listener, mechanism, "sasl.oauthbearer.token.endpoint.url")
        config["sasl.oauthbearer.token.endpoint.url"] = url
        config["sasl.login.read.timeout.ms"] = settings.get("sasl.login.read.timeout.ms")
        config["sasl.login.refresh.window.factor"] = settings.get_float("sasl.login.refresh.window.factor")
    return config


def _tls(settings: BrokerSettings, listener: str) -> dict[str, Any]:
    found = {key: settings.get_for_listener(listener, key) for key in _TLS_KEYS}
    # Without a value the client's default counts, which is the broker's but for the algorithm: empty switches it off.
    given = {key: value for key, value in found.items() if value not in (None, "", ()) or key == _IDENTIFICATION}
    if not settings.is_set("ssl.protocol"):
        del given["ssl.protocol"]
    return given
