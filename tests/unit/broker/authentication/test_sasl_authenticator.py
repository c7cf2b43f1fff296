"""A connection's login: what is answered before, during and after it, and when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.broker.authentication.sasl_authenticator import TRANSITIONS, AuthenticationState, Mechanisms
from braidlog.core.protocol_errors import (
    NONE,
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from braidlog.net.channel import ANONYMOUS
from braidlog.security.oauthbearer import OAuthBearerSaslServer
from braidlog.security.plain import PlainSaslServer, PlainUsers
from braidlog.security.sasl_server import SaslServer
from braidlog.security.token_validation import TokenRefusedError, ValidToken
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.metadata import MetadataRequest
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest
from support.login_world import MAX_FRAME, MAX_RECEIVE, LoginWorld

USERS = PlainUsers({"alice": "s3cret", "bob": "hush"})
ALICE = SaslAuthenticateRequest(auth_bytes=b"\0alice\0s3cret")
WRONG = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wr0ng")
PLAIN = SaslHandshakeRequest(mechanism="PLAIN")
DELAY_S = 0.25


def world(max_reauth_ms: int = 0) -> LoginWorld:
    servers = {"PLAIN": lambda: PlainSaslServer(USERS), "OTHER": lambda: PlainSaslServer(USERS)}
    return LoginWorld(Mechanisms({**servers}, {"PLAIN": max_reauth_ms, "OTHER": 0}, MAX_RECEIVE, DELAY_S))


def logged_in(max_reauth_ms: int = 0) -> LoginWorld:
    made = world(max_reauth_ms)
    assert made.ask(PLAIN, 1).error_code == NONE
    assert made.ask(ALICE, 2).error_code == NONE
    return made


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login(version: int) -> None:
    asked = world()
    assert asked.channel.max_frame == MAX_RECEIVE
    assert asked.ask(ApiVersionsRequest(), 0).error_code == NONE
    assert asked.ask(PLAIN, 1).mechanisms == ["PLAIN", "OTHER"]
    assert asked.channel.principal == ANONYMOUS
    assert asked.ask(ALICE, version).error_code == NONE
    assert asked.channel.principal == "alice"
    # From here on requests do not even pass by.
    assert asked.channel.handler is asked.dispatch
    assert asked.channel.max_frame == MAX_FRAME
    assert asked.listener.succeeded == 1


def test_bare_tokens_follow_version_0() -> None:
    asked = world()
    assert asked.ask(PLAIN, 0).error_code == NONE
    asked.frame(b"\0alice\0s3cret")
    assert asked.taken() == b""
    assert asked.channel.principal == "alice"
    assert asked.ask(ApiVersionsRequest(), 0).error_code == NONE


def test_a_wrong_bare_token_is_not_answered() -> None:
    asked = world()
    asked.ask(PLAIN, 0)
    asked.frame(b"\0alice\0wr0ng")
    asked.loop.advance(DELAY_S)
    assert asked.taken() is None
    asked.loop.advance(1)
    assert asked.channel.closed


def test_a_refusal_comes_late_and_then_the_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog.security")
    asked = world()
    asked.ask(PLAIN, 1)
    asked.request(WRONG, 2)
    assert asked.taken() is None
    assert asked.channel.muted
    asked.loop.advance(DELAY_S)
    answer: SaslAuthenticateResponse = asked.answer(WRONG, 2)
    assert answer.error_code == SaslAuthenticationFailedError.code
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert not asked.channel.closed
    asked.loop.advance(1)
    assert asked.channel.reason == "its login was refused"
    assert (asked.listener.failed, asked.listener.succeeded) == (1, 0)
    assert "failed authentication of 'alice' with PLAIN from 192.0.2.1 on CLIENTS" in caplog.text
    assert "wr0ng" not in caplog.text


def test_a_client_that_leaves_before_it_is_refused() -> None:
    asked = world()
    asked.ask(PLAIN, 1)
    asked.request(WRONG, 2)
    asked.channel.close("the peer closed")
    asked.loop.advance(10)
    assert asked.taken() is None


def test_many_refusals_are_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog.security")
    asked = world()
    for _ in range(20):
        asked.connect()
        asked.ask(PLAIN, 1)
        asked.request(WRONG, 2)
    assert len(caplog.records) == 1
    asked.loop.advance(2)
    asked.connect()
    asked.ask(PLAIN, 1)
    asked.request(WRONG, 2)
    assert "(20 since the last such line)" in caplog.text


def test_a_mechanism_that_is_not_offered() -> None:
    asked = world()
    unknown = SaslHandshakeRequest(mechanism="GSSAPI")
    asked.request(unknown, 1)
    asked.loop.advance(DELAY_S)
    answer = asked.answer(unknown, 1)
    assert (answer.error_code, answer.mechanisms) == (UnsupportedSaslMechanismError.code, ["PLAIN", "OTHER"])
    asked.loop.advance(1)
    assert asked.channel.closed


@pytest.mark.parametrize("before", [[], [PLAIN]])
def test_other_requests_close_the_connection(before: list[SaslHandshakeRequest]) -> None:
    asked = world()
    for request in before:
        asked.ask(request, 1)
    asked.request(MetadataRequest(), 1)
    assert asked.channel.closed
    assert asked.taken() is None


def test_steps_out_of_order() -> None:
    asked = world()
    asked.request(ALICE, 2)
    assert asked.channel.closed
    twice = world()
    twice.ask(PLAIN, 1)
    twice.request(PLAIN, 1)
    twice.loop.advance(60)
    refused = twice.answer(PLAIN, 1)
    assert (refused.error_code, refused.mechanisms) == (IllegalSaslStateError.code, [])
    twice.loop.advance(60)
    assert twice.channel.closed
    done = logged_in()
    assert done.ask(ALICE, 2).error_code == IllegalSaslStateError.code
    assert done.channel.principal == "alice"


def test_a_new_login_before_the_session_is_over() -> None:
    asked = world(max_reauth_ms=5_000)
    asked.ask(PLAIN, 1)
    assert asked.ask(ALICE, 2).session_lifetime_ms == 5_000
    asked.loop.advance(4)
    assert asked.ask(PLAIN, 1).error_code == NONE
    asked.loop.advance(4)  # the old session's end does not count any more
    assert asked.ask(ALICE, 2).session_lifetime_ms == 5_000
    assert asked.ask(ApiVersionsRequest(), 0).error_code == NONE
    assert (asked.listener.succeeded, asked.listener.reauthenticated, asked.listener.expired) == (1, 1, 0)


def test_a_session_that_is_over() -> None:
    asked = logged_in(max_reauth_ms=5_000)
    asked.loop.advance(5)
    asked.request(ApiVersionsRequest(), 0)
    assert asked.channel.closed
    assert asked.listener.expired == 1
    late = logged_in(max_reauth_ms=5_000)
    late.loop.advance(60)
    assert late.ask(PLAIN, 1).error_code == NONE
    assert late.ask(ALICE, 2).error_code == NONE
    assert late.ask(ApiVersionsRequest(), 0).error_code == NONE


# Tokens


OAUTHBEARER = SaslHandshakeRequest(mechanism="OAUTHBEARER")
ACKNOWLEDGED = SaslAuthenticateRequest(auth_bytes=b"\x01")


def bearer(token: str) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {token}\x01\x01".encode())


def token_world(expires_after_ms: int = 60_000, max_reauth_ms: int = 0) -> LoginWorld:
    def validate(token: str) -> ValidToken:
        if token != "good":
            raise TokenRefusedError("it expired 5 s ago")
        return ValidToken("alice", made.clock.wall_ms() + expires_after_ms)

    servers: dict[str, Callable[[], SaslServer]] = {"OAUTHBEARER": lambda: OAuthBearerSaslServer(validate)}
    made = LoginWorld(Mechanisms(servers, {"OAUTHBEARER": max_reauth_ms}, MAX_RECEIVE, DELAY_S))
    return made


@pytest.mark.parametrize(
    ("token_ms", "max_reauth_ms", "session_ms"),
    [(60_000, 0, 60_000), (60_000, 5_000, 5_000), (5_000, 60_000, 5_000), (-5, 0, 1)],
)
def test_a_session_lasts_no_longer_than_its_token(token_ms: int, max_reauth_ms: int, session_ms: int) -> None:
    asked = token_world(token_ms, max_reauth_ms)
    asked.ask(OAUTHBEARER, 1)
    assert asked.ask(bearer("good"), 1).session_lifetime_ms == session_ms
    assert asked.channel.principal == "alice"
    asked.loop.advance(session_ms / 1000)
    asked.request(ApiVersionsRequest(), 0)
    assert asked.channel.closed
    assert asked.listener.expired == 1


def test_a_token_that_is_not_accepted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog.security")
    asked = token_world()
    asked.ask(OAUTHBEARER, 1)
    told: SaslAuthenticateResponse = asked.ask(bearer("se.cr.et"), 2)
    assert (told.error_code, bytes(told.auth_bytes)) == (NONE, b'{"status":"invalid_token"}')
    # Nothing else is answered meanwhile.
    assert asked.channel.principal == ANONYMOUS
    asked.request(ACKNOWLEDGED, 2)
    assert asked.taken() is None
    asked.loop.advance(DELAY_S)
    refused: SaslAuthenticateResponse = asked.answer(ACKNOWLEDGED, 2)
    assert refused.error_code == SaslAuthenticationFailedError.code
    assert refused.error_message == '{"status":"invalid_token"}'
    assert "the token is not accepted: it expired 5 s ago" in caplog.text
    assert "se.cr.et" not in caplog.text
    assert asked.listener.failed == 1


def test_what_a_new_login_may_not_change() -> None:
    soon = logged_in()
    soon.loop.advance(0.5)
    assert soon.ask(PLAIN, 1).error_code == IllegalSaslStateError.code
    bob = logged_in()
    bob.loop.advance(2)
    bob.ask(PLAIN, 1)
    request = SaslAuthenticateRequest(auth_bytes=b"\0bob\0hush")
    bob.request(request, 2)
    bob.loop.advance(DELAY_S)
    assert "Cannot change principals" in bob.answer(request, 2).error_message
    other = logged_in()
    other.loop.advance(2)
    another = SaslHandshakeRequest(mechanism="OTHER")
    other.request(another, 1)
    other.loop.advance(DELAY_S)
    assert other.answer(another, 1).error_code == IllegalSaslStateError.code
    assert other.listener.failed_reauthentications == 1


def test_new_users_count_for_the_logins_that_come() -> None:
    asked = world()
    asked.listener.mechanisms = asked.listener.mechanisms._replace(
        new_server={"PLAIN": lambda: PlainSaslServer(PlainUsers({"carol": "new"}))}
    )
    asked.ask(PLAIN, 1)
    assert asked.ask(SaslAuthenticateRequest(auth_bytes=b"\0carol\0new"), 2).error_code == NONE


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_whatever_comes_before_a_login_lets_nobody_in(frames: list[bytes]) -> None:
    asked = world()
    for frame in frames:
        if not asked.channel.closed:
            asked.frame(frame)
    assert asked.channel.principal == ANONYMOUS
    assert asked.channel.handler is not asked.dispatch


def test_every_state_can_fail_or_has() -> None:
    assert all(
        AuthenticationState.FAILED in further for state, further in TRANSITIONS.items() if state.value != "failed"
    )
