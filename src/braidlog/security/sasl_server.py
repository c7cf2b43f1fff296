"""What every SASL mechanism shares on the broker's side: steps by a table, and refusals that never show a secret.

    server = ScramSaslServer(SHA_256, credential_of)
    challenge = server.evaluate(message)          # what the client said; again until it is complete
    assert server.is_complete
    server.user                                   # who it is

Its caller does the sending; a server is used for one authentication. A refusal is the protocol's own error, whose text
the client is shown: it is the same for an unknown user as for a wrong password.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final

from braidlog.core.protocol_errors import SaslAuthenticationFailedError


class ServerState(Enum):
    """Where an authentication stands on the broker's side."""

    # Nothing came yet; the client's first message is next.
    START = "start"
    # The client was asked for a proof (SCRAM), or told what is wrong with its token (OAUTHBEARER); it answers next.
    CHALLENGED = "challenged"
    # The client is who it says. Goes nowhere.
    COMPLETE = "complete"
    # Refused, for good.
    FAILED = "failed"


TRANSITIONS: Final[dict[ServerState, frozenset[ServerState]]] = {
    ServerState.START: frozenset({ServerState.CHALLENGED, ServerState.COMPLETE, ServerState.FAILED}),
    ServerState.CHALLENGED: frozenset({ServerState.COMPLETE, ServerState.FAILED}),
    ServerState.COMPLETE: frozenset(),
    ServerState.FAILED: frozenset(),
}


class SaslServer:
    """One authentication of a client; a mechanism says how it answers in each state."""

    mechanism: ClassVar[str] = ""

    def __init__(self) -> None:
        self._history = [ServerState.START]
        # Who the client is, once that is proved; before, who it says to be.
        self.user = ""
        # When what it showed ends by itself, in milliseconds since 1970; none where it does not.
        self.expires_ms: int | None = None
        # Why it was refused, for the broker's log, where the client is told less.
        self.reason = ""
        # Whether it was a delegation token, with which no further tokens can be had.
        self.is_by_token = False

    @property
    def state(self) -> ServerState:
        return self._history[-1]

    @property
    def is_complete(self) -> bool:
        return self.state is ServerState.COMPLETE

    def named(self) -> str:
        return self.mechanism

    def evaluate(self, message: bytes) -> bytes:
        """What to answer; raises SaslAuthenticationFailedError where the client is not let in."""
        if not TRANSITIONS[self.state]:
            raise self._misuse("was given a message")
        try:
            return self._evaluate(message)
        except SaslAuthenticationFailedError:
            self._move(ServerState.FAILED)
            raise

    def _evaluate(self, message: bytes) -> bytes:
        raise NotImplementedError

    def _move(self, to: ServerState) -> None:
        if to not in TRANSITIONS[self.state]:
            raise self._misuse(f"cannot become {to.value}")
        self._history.append(to)

    def _misuse(self, what: str) -> RuntimeError:
        walked = " → ".join(state.value for state in self._history)
        return RuntimeError(f"a {self.named()} authentication {what} (so far: {walked})")

    def __repr__(self) -> str:
        return f"<{self.named()} authentication, {self.state.value}>"


def text_of(message: bytes, mechanism: str) -> str:
    """The message as text, which all mechanisms speak."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise refused(mechanism) from None


def refused(mechanism: str) -> SaslAuthenticationFailedError:
    """Kafka's words for whatever is wrong with credentials, so that clients see what they know."""
    return SaslAuthenticationFailedError(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
