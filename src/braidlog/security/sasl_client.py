"""What every SASL mechanism shares on the client's side: steps by a table, and failures that never show a secret.

    exchange = ScramExchange(SHA_256, Password("alice", "secret"))
    message = exchange.first()
    while message is not None:
        message = exchange.answer(challenge)      # what the server said to `message`
    assert exchange.is_complete

Its caller does the sending; an exchange is used once, a new authentication takes a new one.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final

from braidlog.net.outbound.errors import SaslError


class SaslProtocolError(SaslError):
    """The server said something that the mechanism does not allow: it is broken, or not who it claims to be."""


class SaslRefused(SaslError):
    """The server does not accept the credentials."""


class SaslMisuse(SaslError):
    """Our own bug: a step that the exchange is not at."""


class State(Enum):
    """Where an exchange stands."""

    # Nothing was sent; may only send its first message.
    START = "start"
    # The first message is out; the server's challenge or its verdict comes next.
    ASKED = "asked"
    # The challenge was answered with a proof; the server's own proof comes next (SCRAM).
    PROVED = "proved"
    # The server said why it refuses, and got its acknowledgement; only its final refusal may follow (OAUTHBEARER).
    REFUSED = "refused"
    # Done: both sides are satisfied. Goes nowhere.
    COMPLETE = "complete"
    # Failed, for good.
    FAILED = "failed"


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.START: frozenset({State.ASKED, State.FAILED}),
    State.ASKED: frozenset({State.PROVED, State.REFUSED, State.COMPLETE, State.FAILED}),
    State.PROVED: frozenset({State.COMPLETE, State.FAILED}),
    State.REFUSED: frozenset({State.FAILED}),
    State.COMPLETE: frozenset(),
    State.FAILED: frozenset(),
}


class SaslClient:
    """One authentication; a mechanism says what it sends first and how it answers in each state."""

    mechanism: ClassVar[str] = ""

    def __init__(self) -> None:
        self._history = [State.START]
        # What the server said against the credentials, where its mechanism lets it say so.
        self.refusal = ""

    @property
    def state(self) -> State:
        return self._history[-1]

    @property
    def is_complete(self) -> bool:
        return self.state is State.COMPLETE

    def first(self) -> bytes:
        """The message that opens the exchange."""
        self._move(State.ASKED)
        return self._first()

    def answer(self, challenge: bytes) -> bytes | None:
        """What to say to the server's message; none where there is nothing left to say."""
        if not TRANSITIONS[self.state] or self.state is State.START:
            raise self._misuse("was given a challenge")
        try:
            return self._answer(challenge)
        except SaslError:
            self._move(State.FAILED)
            raise

    def _first(self) -> bytes:
        raise NotImplementedError

    def _answer(self, challenge: bytes) -> bytes | None:
        raise NotImplementedError

    def _move(self, to: State) -> None:
        if to not in TRANSITIONS[self.state]:
            raise self._misuse(f"cannot become {to.value}")
        self._history.append(to)

    def _misuse(self, what: str) -> SaslMisuse:
        walked = " → ".join(state.value for state in self._history)
        return SaslMisuse(f"a {self.named()} exchange {what} (so far: {walked})")

    def named(self) -> str:
        return self.mechanism

    def __repr__(self) -> str:
        return f"<{self.named()} exchange, {self.state.value}>"
