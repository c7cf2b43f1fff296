"""SASL on a connection, and again before a session ends.

    SaslHandshake v1 (mechanism) → SaslAuthenticate (first message) ⇄ … → session_lifetime_ms

A broker may limit how long a session lasts (`connections.max.reauth.ms`, KIP-368) and closes connections that go on
without having authenticated again. That happens on the same connection: what is posted meanwhile is held back, what
is under way is answered before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, Protocol

from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import (
    NONE,
    IllegalSaslStateError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    from_code,
)
from braidlog.net.outbound.errors import AuthenticationFailed, ClientError, SaslError
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

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


class SaslExchange(Protocol):
    """One authentication with one mechanism (`security.sasl_client`); it raises SaslError where it fails."""

    # What the server said against the credentials, where its mechanism lets it say so.
    refusal: str

    @property
    def is_complete(self) -> bool: ...

    def named(self) -> str: ...

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None: ...


class SaslSession:
    """Authenticates one connection again and again, each time before its session ends (KIP-368)."""

    def __init__(
        self,
        connection: PipelinedConnection,
        new_exchange: Callable[[], Awaitable[SaslExchange]],
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
            # A token is fetched first: that may take a while, and requests go on meanwhile.
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
    connection: PipelinedConnection, exchange: SaslExchange, timeout_s: float, *, again: bool = False
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


async def _choose(connection: PipelinedConnection, exchange: SaslExchange, timeout_s: float, again: bool) -> None:
    version = connection.version_for(SASL_HANDSHAKE)
    if version < _HANDSHAKE_VERSION:
        raise AuthenticationFailed(f"the broker at {connection.address} is older than 1.0; its SASL is not supported")
    request = sasl_handshake_request(exchange.named())
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


async def _converse(connection: PipelinedConnection, exchange: SaslExchange, timeout_s: float, again: bool) -> int:
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
    connection: PipelinedConnection, exchange: SaslExchange, answer: SaslAuthenticateResponse
) -> AuthenticationFailed:
    # What a server said of a token before is more precise than its final refusal.
    said = exchange.refusal or answer.error_message or from_code(answer.error_code).name
    return _failure(connection, exchange, said)


def _failure(connection: PipelinedConnection, exchange: SaslExchange, why: str) -> AuthenticationFailed:
    check = "the token and who issued it" if exchange.named() == "OAUTHBEARER" else "user name and password"
    return AuthenticationFailed(
        f"SASL authentication failed at {connection.address} with {exchange.named()}: {why}; check {check}, "
        "and sasl.mechanism"
    )


def sasl_handshake_request(mechanism: str) -> SaslHandshakeRequest:
    return SaslHandshakeRequest(mechanism=mechanism)
