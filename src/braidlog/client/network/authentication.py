"""How a connection is let in: TLS where it is asked for, SASL where it is asked for, and again before a session ends.

    SaslHandshake v1 (mechanism) → SaslAuthenticate (first message) ⇄ … → session_lifetime_ms

A broker may limit how long a session lasts (`connections.max.reauth.ms`, KIP-368) and closes connections that go on
without having authenticated again. That happens on the same connection: what is posted meanwhile is held back, what
is under way is answered before, and nobody notices.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from braidlog.client.errors import AuthenticationFailed, ClientError, NoConnection
from braidlog.client.network.nodes import WANTS_SASL
from braidlog.client.settings import Settings
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import (
    NONE,
    IllegalSaslStateError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    from_code,
)
from braidlog.net.outbound.connector import in_own_thread
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.transport import PlainTransport, Transport
from braidlog.security.login import Login, login_of
from braidlog.security.sasl_client import SaslClient, SaslError
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from braidlog.client.network.tls_context import TlsContext
    from braidlog.net.outbound.connector import Address

log = logging.getLogger("braidlog.client")

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
# Version 0 would be followed by bare bytes instead of SaslAuthenticate (KIP-152).
_HANDSHAKE_VERSION: Final = 1
# Kafka's clients renew between these shares of a session's life, each at its own moment.
_RENEW_FROM: Final = 0.85
_RENEW_TO: Final = 0.95
# Brokers refuse a second authentication within a second of the first.
_SOONEST_S: Final = 1.05
# Mechanisms have three messages at most; a server that asks on is broken.
_MOST_STEPS: Final = 10


def channel_builder_for(settings: Settings) -> SecureChannelBuilder:
    """What `security.protocol` asks for; raises UserError where the settings cannot be followed."""
    protocol = settings.text("security.protocol").upper()
    return SecureChannelBuilder(
        settings, with_tls=protocol.endswith("SSL"), login=_login(settings) if protocol.startswith("SASL_") else None
    )


def _login(settings: Settings) -> Login:
    endpoint = None
    url = settings.optional_text("sasl.oauthbearer.token.endpoint.url")
    if url:
        from braidlog.client.network.token_endpoint import endpoint_for

        endpoint = endpoint_for(settings, url)
    return login_of(
        settings.text("sasl.mechanism").upper(),
        jaas_config=settings.optional_text("sasl.jaas.config"),
        username=settings.optional_text("sasl.username"),
        password=settings.optional_text("sasl.password"),
        token_provider=settings.object("sasl.oauth.token.provider"),
        token_endpoint=endpoint,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )


class SecureChannelBuilder:
    """Fresh sockets in, connections that the broker trusts out."""

    def __init__(
        self, settings: Settings, *, with_tls: bool, login: Login | None, random: Random | None = None
    ) -> None:
        self._timeout_s = min(
            settings.seconds("request.timeout.ms"), settings.seconds("socket.connection.setup.timeout.ms")
        )
        self._login = login
        self._random = random or Random()
        self._context: TlsContext | None = None
        if with_tls:
            # Who authenticates in clear text does not pay for this.
            from braidlog.client.network.tls_context import tls_context

            self._context = tls_context(settings)

    async def secure(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
        if self._context is None:
            return PlainTransport(loop, connected)
        from braidlog.client.network.tls import secured

        return await secured(loop, connected, self._context, host, self._timeout_s)

    async def authenticate(self, connection: PipelinedConnection) -> None:
        if self._login is None:
            connection.hint = WANTS_SASL
            return
        lifetime_ms = await authenticate(connection, await self._new_exchange(), self._timeout_s)
        if lifetime_ms > 0:
            session = _Session(connection, self._new_exchange, self._timeout_s, self._random)
            session.begin(lifetime_ms)

    async def explained(self, problem: NoConnection, address: Address) -> ClientError:
        if self._context is not None:
            return problem
        from braidlog.client.network.listener_probe import explain_plaintext_failure

        return await explain_plaintext_failure(problem, address)

    async def _new_exchange(self) -> SaslClient:
        """With credentials of now: a token may have been renewed since the last time."""
        login = self._login
        assert login is not None
        try:
            if login.is_blocking:
                who: Any = await asyncio.wait_for(in_own_thread("token", login.credentials), self._timeout_s)
            else:
                who = login.credentials()
            if inspect.isawaitable(who):
                who = await asyncio.wait_for(who, self._timeout_s)
            return login.sasl_client(who)
        except BraidlogError:
            raise
        except TimeoutError as problem:
            raise NoConnection(f"the token provider returned nothing within {self._timeout_s:g} s") from problem
        except OSError as problem:
            # It asks somebody over the network, who may answer a moment later.
            raise NoConnection(
                f"the token provider failed ({type(problem).__name__}); without a token there is no login"
            ) from problem
        except Exception as problem:
            raise AuthenticationFailed(
                f"the token provider failed ({type(problem).__name__}); without a token there is no login"
            ) from problem


class _Session:
    """Authenticates one connection again and again, each time before its session ends (KIP-368)."""

    def __init__(
        self,
        connection: PipelinedConnection,
        new_exchange: Callable[[], Awaitable[SaslClient]],
        timeout_s: float,
        random: Random,
    ) -> None:
        self._connection = connection
        self._new_exchange = new_exchange
        self._timeout_s = timeout_s
        self._random = random
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        connection.at_end(self._stop)

    def begin(self, lifetime_ms: int) -> None:
        delay = max(lifetime_ms / 1000.0 * self._random.uniform(_RENEW_FROM, _RENEW_TO), _SOONEST_S)
        self._timer = asyncio.get_running_loop().call_later(delay, self._start)

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._renew(), name=f"authenticate to {self._connection.address} again"
        )

    async def _renew(self) -> None:
        connection = self._connection
        try:
            # A token is fetched first: that may take a while, for which nobody has to wait.
            exchange = await self._new_exchange()
            connection.hold()
            try:
                lifetime_ms = await authenticate(connection, exchange, self._timeout_s, again=True)
            finally:
                connection.release()
        except ClientError as problem:
            self._fail(problem)
        except BraidlogError as problem:
            self._fail(AuthenticationFailed(str(problem)))
        else:
            if lifetime_ms > 0:
                self.begin(lifetime_ms)

    def _fail(self, problem: ClientError) -> None:
        if self._connection.is_open:
            log.warning("authenticating again failed: %s", problem)
            self._connection.fail(problem)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()


async def authenticate(
    connection: PipelinedConnection, exchange: SaslClient, timeout_s: float, *, again: bool = False
) -> int:
    """Go through an exchange; how many milliseconds the session lasts, 0 for as long as the connection."""
    try:
        await _choose(connection, exchange, timeout_s, again)
        return await _converse(connection, exchange, timeout_s, again)
    except SaslError as problem:
        raise _failure(connection, exchange, str(problem)) from problem
    except UnsupportedVersionError as problem:
        raise AuthenticationFailed(
            f"the broker at {connection.address} offers no SASL; set security.protocol without SASL_"
        ) from problem


async def _choose(connection: PipelinedConnection, exchange: SaslClient, timeout_s: float, again: bool) -> None:
    version = connection.version_for(SASL_HANDSHAKE)
    if version < _HANDSHAKE_VERSION:
        raise AuthenticationFailed(f"the broker at {connection.address} is older than 1.0; its SASL is not supported")
    request = SaslHandshakeRequest(mechanism=exchange.named())
    answer = await connection.post(SASL_HANDSHAKE, version, request, timeout_s, ahead=again)
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code == NONE:
        return
    if answer.error_code == UnsupportedSaslMechanismError.code:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"the broker at {connection.address} does not offer {exchange.named()}, only {offered}; set sasl.mechanism"
        )
    if answer.error_code == IllegalSaslStateError.code and not again:
        raise AuthenticationFailed(
            f"the broker at {connection.address} wants no SASL on this listener; "
            "set security.protocol to PLAINTEXT (or SSL), or use the port of a SASL listener"
        )
    raise _failure(connection, exchange, from_code(answer.error_code).name)


async def _converse(connection: PipelinedConnection, exchange: SaslClient, timeout_s: float, again: bool) -> int:
    version = connection.version_for(SASL_AUTHENTICATE)
    lifetime_ms = 0
    message: bytes | None = exchange.first()
    for _ in range(_MOST_STEPS):
        if message is None:
            break
        request = SaslAuthenticateRequest(auth_bytes=message)
        answer = await connection.post(SASL_AUTHENTICATE, version, request, timeout_s, ahead=again)
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error_code != NONE:
            raise _refused(connection, exchange, answer)
        lifetime_ms = answer.session_lifetime_ms
        message = exchange.answer(bytes(answer.auth_bytes))
    if not exchange.is_complete:
        raise _failure(connection, exchange, "the broker did not come to an end of it")
    return lifetime_ms


def _refused(
    connection: PipelinedConnection, exchange: SaslClient, answer: SaslAuthenticateResponse
) -> AuthenticationFailed:
    # What a server said of a token before is more precise than its final refusal.
    said = exchange.refusal or answer.error_message or from_code(answer.error_code).name
    return _failure(connection, exchange, said)


def _failure(connection: PipelinedConnection, exchange: SaslClient, why: str) -> AuthenticationFailed:
    check = "the token and who issued it" if exchange.named() == "OAUTHBEARER" else "user name and password"
    return AuthenticationFailed(
        f"SASL authentication failed at {connection.address} with {exchange.named()}: {why}; check {check}, "
        "and sasl.mechanism"
    )
