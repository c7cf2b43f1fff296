"""The table of states, and that no exchange shows a secret."""

from __future__ import annotations

import pytest

from braidlog.security.credentials import BearerToken, Password
from braidlog.security.login import Login
from braidlog.security.oauthbearer import OAuthBearerSaslClient
from braidlog.security.plain import PlainSaslClient
from braidlog.security.sasl_client import TRANSITIONS, SaslClient, SaslMisuse, State
from braidlog.security.scram import SHA_256, ScramSaslClient

SECRET = "s3cr3t-value"
WHO = Password("alice", SECRET)
TOKEN = BearerToken(SECRET)


def exchanges() -> list[SaslClient]:
    return [PlainSaslClient(WHO), ScramSaslClient(SHA_256, WHO), OAuthBearerSaslClient(TOKEN)]


def test_every_state_is_reached_and_ends() -> None:
    assert set(TRANSITIONS) == set(State)
    reached = {State.START}.union(*TRANSITIONS.values())
    assert reached == set(State)
    assert [state for state, after in TRANSITIONS.items() if not after] == [State.COMPLETE, State.FAILED]


@pytest.mark.parametrize("exchange", exchanges(), ids=lambda each: each.named())
def test_a_step_out_of_turn_tells_the_way_so_far(exchange: SaslClient) -> None:
    with pytest.raises(SaslMisuse, match=rf"{exchange.named()} exchange was given a challenge \(so far: start\)"):
        exchange.answer(b"")
    exchange.first()
    with pytest.raises(SaslMisuse, match=r"cannot become asked .so far: start → asked."):
        exchange.first()


@pytest.mark.parametrize(
    "shown", [*exchanges(), WHO, TOKEN, Login("PLAIN", lambda: WHO)], ids=lambda each: type(each).__name__
)
def test_nothing_shows_the_secret(shown: object) -> None:
    assert SECRET not in repr(shown)
    assert SECRET not in str(shown)
