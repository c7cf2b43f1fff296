"""SASL on a listener's connections: nothing but a login is answered before there is one.

    SaslHandshake v1 (mechanism) → SaslAuthenticate (token) ⇄ … → requests
    SaslHandshake v0 (mechanism) → | size i32 | token | ⇄ …     → requests      as clients before Kafka 1.0 do it

Each connection has its authenticator. It stands before the broker's dispatch until the login is done and is out of the
way afterwards, so that requests cost what they cost on a listener without login. Where sessions end
(`connections.max.reauth.ms`, KIP-368) it takes its place again when one does, or when the client logs in anew.

A refused login is answered late (`connection.failed.authentication.delay.ms`), and then the connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, Protocol

from librt.strings import read_i16_be

from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import (
    NONE,
    IllegalSaslStateError,
    ProtocolError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange
from braidlog.security.sasl_server import SaslServer
from braidlog.wire.apis import APIS
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

log = logging.getLogger("braidlog.security")

_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_SASL_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
_SASL_AUTHENTICATE: Final = int(ApiKey.SASL_AUTHENTICATE)
# Who logs in anew more often than this is refused, as by Kafka.
_REAUTHENTICATE_AFTER_S: Final = 1.0
# Some clients forget an answer that comes together with the end of the connection: they may close it themselves.
_CLOSE_AFTER_S: Final = 0.5
# Refused logins are logged one by one, but not more often than this.
_LOG_EVERY_S: Final = 1.0


class AuthenticationState(Enum):
    """Where a connection stands."""

    # Nothing is agreed on: takes ApiVersions, and SaslHandshake for the mechanism.
    HANDSHAKE = "handshake"
    # The mechanism is known: takes SaslAuthenticate until that is complete.
    AUTHENTICATE = "authenticate"
    # As before, in the way of old clients: every frame is a token.
    TOKENS = "tokens"
    # The client is known, and its requests go past the authenticator; SaslHandshake begins anew.
    COMPLETE = "complete"
    # The session is over: takes SaslHandshake, and closes the connection for anything else.
    EXPIRED = "expired"
    # Refused; the connection is about to be closed.
    FAILED = "failed"


_S = AuthenticationState
TRANSITIONS: Final[dict[AuthenticationState, frozenset[AuthenticationState]]] = {
    _S.HANDSHAKE: frozenset({_S.AUTHENTICATE, _S.TOKENS, _S.FAILED}),
    _S.AUTHENTICATE: frozenset({_S.COMPLETE, _S.FAILED}),
    _S.TOKENS: frozenset({_S.COMPLETE, _S.FAILED}),
    _S.COMPLETE: frozenset({_S.AUTHENTICATE, _S.EXPIRED, _S.FAILED}),
    _S.EXPIRED: frozenset({_S.AUTHENTICATE, _S.FAILED}),
    _S.FAILED: frozenset(),
}
# What the broker's dispatch is given while the login is not done.
_TAKEN: Final[dict[AuthenticationState, tuple[int, ...]]] = {
    _S.HANDSHAKE: (_API_VERSIONS, _SASL_HANDSHAKE),
    _S.AUTHENTICATE: (_SASL_AUTHENTICATE, _SASL_HANDSHAKE),
    _S.EXPIRED: (_SASL_HANDSHAKE,),
}


class Timers(Protocol):
    """The part of an event loop that is needed here."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle: ...


class Mechanisms(NamedTuple):
    """What a listener offers, as its settings have it now."""

    # By name, in the order in which they are set.
    new_server: dict[str, Callable[[], SaslServer]]
    # How long a session of each lasts at most, in milliseconds; 0 for as long as the connection.
    max_reauth_ms: dict[str, int]
    # The largest frame before the login.
    max_receive_size: int
    failure_delay_s: float


class SaslListener:
    """What the connections of one listener share."""

    def __init__(self, name: str, mechanisms: Mechanisms, dispatch: FrameHandler, clock: Clock, timers: Timers) -> None:
        self.name = name
        # Replaced when the settings change; logins under way keep what they have.
        self.mechanisms = mechanisms
        self.dispatch = dispatch
        self.clock = clock
        self.timers = timers
        self.succeeded = 0
        self.failed = 0
        self.reauthenticated = 0
        self.failed_reauthentications = 0
        # Closed since their client went on after its session was over.
        self.expired = 0
        self._log_at = 0.0
        self._unlogged = 0

    def begin(self, channel: Channel) -> None:
        """A new connection has to log in first."""
        authenticator = SaslServerAuthenticator(self, channel)
        channel.authenticator = channel.handler = authenticator
        channel.max_frame = min(channel.max_frame, self.mechanisms.max_receive_size)

    def refused(self, channel: Channel, mechanism: str, user: str, why: str) -> None:
        now = self.clock.monotonic()
        self._unlogged += 1
        if now < self._log_at:
            return
        log.info(
            "failed authentication of %r with %s from %s on %s: %s (%d since the last such line)",
            user[:100],
            mechanism,
            channel.peer_host,
            self.name,
            why,
            self._unlogged,
        )
        self._log_at = now + _LOG_EVERY_S
        self._unlogged = 0


class SaslServerAuthenticator(FrameHandler):
    def __init__(self, listener: SaslListener, channel: Channel) -> None:
        self._listener = listener
        self._channel = channel
        self._max_frame = channel.max_frame
        self._history = [_S.HANDSHAKE]
        self._server: SaslServer | None = None
        self._mechanism = ""
        self._again = False
        self._last_began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # Whether the client logged in with a delegation token.
        self.is_by_token = False

    @property
    def state(self) -> AuthenticationState:
        return self._history[-1]

    def _move(self, to: AuthenticationState) -> None:
        if to not in TRANSITIONS[self.state]:
            walked = " → ".join(state.value for state in self._history)
            raise RuntimeError(f"the login of {self._channel.peer_host} cannot become {to.value} (so far: {walked})")
        # A connection that lives long logs in often.
        self._history = [*self._history[-9:], to]

    # Frames

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        if self.state is _S.TOKENS:
            self._take_token(buffer[start:end])
            return
        api_key = int(read_i16_be(buffer, start)) if end - start >= 2 else -1
        if api_key in _TAKEN.get(self.state, ()):
            self._listener.dispatch.handle_frame(channel, buffer, start, end)
            return
        if self.state is _S.EXPIRED:
            self._listener.expired += 1
        name = APIS[api_key].name if api_key in APIS else f"api {api_key}"
        log.debug("closed the connection from %s: %s while in state %s", channel.peer_host, name, self.state.value)
        channel.close(f"{name} without a login (state {self.state.value})")

    def channel_closed(self, channel: Channel) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._listener.dispatch.channel_closed(channel)

    # Requests, as the dispatch hands them over

    def handshake(self, request: SaslHandshakeRequest, exchange: Exchange) -> None:
        listener = self._listener
        now = listener.clock.monotonic()
        if self.state not in (_S.HANDSHAKE, _S.COMPLETE, _S.EXPIRED):
            self._fail(exchange, IllegalSaslStateError("a login is under way"), [])
            return
        is_again = self.state is not _S.HANDSHAKE
        if is_again and (exchange.version < 1 or now - self._last_began < _REAUTHENTICATE_AFTER_S):
            raise IllegalSaslStateError("a client may log in anew once a second, with SaslHandshake v1")
        self._last_began = now
        offered = list(listener.mechanisms.new_server)
        if is_again and request.mechanism != self._mechanism:
            self._again = True
            self._fail(exchange, IllegalSaslStateError(f"the mechanism was {self._mechanism} before"), offered)
            return
        make = listener.mechanisms.new_server.get(request.mechanism)
        if make is None:
            self._mechanism = self._mechanism or "an unknown mechanism"
            self._fail(exchange, UnsupportedSaslMechanismError(f"offered: {', '.join(offered)}"), offered)
            return
        self._again = is_again
        self._server = make()
        self._mechanism = request.mechanism
        self._stop_timer()
        self._move(_S.AUTHENTICATE if exchange.version >= 1 else _S.TOKENS)
        self._channel.handler = self
        exchange.answer(SaslHandshakeResponse(error_code=NONE, mechanisms=offered))

    def authenticate(self, request: SaslAuthenticateRequest, exchange: Exchange) -> None:
        if self.state is not _S.AUTHENTICATE:
            raise IllegalSaslStateError("SaslAuthenticate comes after SaslHandshake, and not after a login")
        try:
            challenge, lifetime_ms = self._evaluate(bytes(request.auth_bytes))
        except SaslAuthenticationFailedError as problem:
            self._fail(exchange, problem)
            return
        exchange.answer(SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=lifetime_ms))

    def _take_token(self, token: bytes) -> None:
        exchange = Exchange(self._channel, _SASL_AUTHENTICATE, 0, 0, None, self._listener.clock.monotonic())
        self._channel.begin(exchange)
        try:
            challenge, _ = self._evaluate(token)
        except SaslAuthenticationFailedError as problem:
            self._fail(exchange, problem)
            return
        exchange.parts = [len(challenge).to_bytes(4, "big") + challenge]
        exchange.finish_silently()

    # What becomes of the login

    def _evaluate(self, token: bytes) -> tuple[bytes, int]:
        """What to answer, and how long the session lasts where this was the last step."""
        server = self._server
        assert server is not None
        challenge = server.evaluate(token)
        if not server.is_complete:
            return challenge, 0
        return challenge, self._complete(server)

    def _complete(self, server: SaslServer) -> int:
        channel = self._channel
        if self._again and server.user != channel.principal:
            raise SaslAuthenticationFailedError(
                f"Cannot change principals during re-authentication from User:{channel.principal}: User:{server.user}"
            )
        self._move(_S.COMPLETE)
        self._server = None
        channel.principal = server.user
        self.is_by_token = server.is_by_token
        channel.max_frame = self._max_frame
        channel.handler = self._listener.dispatch
        if self._again:
            self._listener.reauthenticated += 1
        else:
            self._listener.succeeded += 1
        lifetime_ms = self._lifetime_ms(server)
        if lifetime_ms > 0:
            self._timer = self._listener.timers.call_later(lifetime_ms / 1000, self._expire)
        return lifetime_ms

    def _lifetime_ms(self, server: SaslServer) -> int:
        longest = self._listener.mechanisms.max_reauth_ms.get(self._mechanism, 0)
        if server.expires_ms is None:
            return longest
        left = max(server.expires_ms - self._listener.clock.wall_ms(), 1)
        return min(left, longest) if longest > 0 else left

    def _expire(self) -> None:
        """Whatever the client sends next has to be a new login."""
        self._timer = None
        if self.state is _S.COMPLETE and not self._channel.closed:
            self._move(_S.EXPIRED)
            self._channel.handler = self

    def _fail(self, exchange: Exchange, problem: ProtocolError, offered: list[str] | None = None) -> None:
        """`offered` where a SaslHandshake is answered."""
        listener = self._listener
        user = "" if self._server is None else self._server.user
        why = "" if self._server is None else self._server.reason
        is_bare = self.state is _S.TOKENS
        self._move(_S.FAILED)
        self._channel.handler = self
        self._channel.mute()
        if self._again:
            listener.failed_reauthentications += 1
        else:
            listener.failed += 1
        listener.refused(self._channel, self._mechanism, user, why or problem.message or "")
        self._server = None
        self._stop_timer()

        def answer() -> None:
            self._timer = None
            if self._channel.closed:
                return
            if is_bare:
                exchange.finish_silently()
            elif offered is not None:
                exchange.answer(SaslHandshakeResponse(error_code=problem.code, mechanisms=offered))
            else:
                exchange.fail(problem)
            self._timer = listener.timers.call_later(_CLOSE_AFTER_S, close)

        def close() -> None:
            self._timer = None
            self._channel.close("its login was refused")

        self._timer = listener.timers.call_later(listener.mechanisms.failure_delay_s, answer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
