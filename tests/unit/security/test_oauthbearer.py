"""OAUTHBEARER: the message, the refusal, and what a token may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security.credentials import BearerToken
from braidlog.security.oauthbearer import (
    OAuthBearerSaslClient,
    OAuthBearerSaslServer,
    claims_of,
    encode_unsecured,
    unsecured_token,
)
from braidlog.security.sasl_client import SaslProtocolError, SaslRefused, State
from braidlog.security.sasl_server import ServerState
from braidlog.security.token_validation import INSUFFICIENT_SCOPE, TokenRefusedError, ValidToken


def test_a_token_with_extensions() -> None:
    exchange = OAuthBearerSaslClient(BearerToken("abc.def.", extensions={"traceId": "1 2", "logicalCluster": "lkc"}))
    assert exchange.first() == b"n,,\x01auth=Bearer abc.def.\x01traceId=1 2\x01logicalCluster=lkc\x01\x01"
    assert exchange.answer(b"") is None
    assert exchange.is_complete


def test_the_servers_error_is_acknowledged_and_told() -> None:
    exchange = OAuthBearerSaslClient(BearerToken("abc"))
    exchange.first()
    assert exchange.answer(b'{"status":"insufficient_scope","scope":"produce"}') == b"\x01"
    assert exchange.refusal == "insufficient_scope, needed scope: produce"
    with pytest.raises(SaslRefused, match="insufficient_scope"):
        exchange.answer(b"")
    assert exchange.state is State.FAILED


@pytest.mark.parametrize("challenge", [b"{", b"[]", b"\xff\xfe", b"null"])
def test_an_answer_that_is_none(challenge: bytes) -> None:
    exchange = OAuthBearerSaslClient(BearerToken("abc"))
    exchange.first()
    with pytest.raises(SaslProtocolError):
        exchange.answer(challenge)


@pytest.mark.parametrize("value", ["", "two words", "a\x01b", "naïve", "a=b"])
def test_what_is_no_token_is_not_sent_and_not_shown(value: str) -> None:
    with pytest.raises(UserError, match="token provider") as caught:
        BearerToken(value)
    assert not value or value not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("auth", "x"), ("two words", "x"), ("a1", "x"), ("trace", ""), ("a", "\x01")]
)
def test_what_is_no_extension(name: str, value: str) -> None:
    with pytest.raises(UserError, match="SASL extension"):
        BearerToken("abc", extensions={name: value})


def test_claims_from_options() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginNumberClaim_level": "7",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginExtension_traceId": "42",
        "unsecuredLoginLifetimeSeconds": "60",
        "other": "ignored",
    }
    token = unsecured_token(options, 1_000_000)
    assert claims_of(token.value) == {
        "sub": "alice", "level": 7.0, "scope": ["read", "write"], "iat": 1000.0, "exp": 1060.0,
    }  # fmt: skip
    assert token.expires_ms == 1_060_000
    assert token.principal == "alice"
    assert token.extensions == {"traceId": "42"}
    assert token.value.endswith(".")


def test_the_name_may_be_in_another_claim() -> None:
    options = {"unsecuredLoginPrincipalClaimName": "user", "unsecuredLoginStringClaim_user": "bob"}
    assert unsecured_token(options, 0).principal == "bob"


def test_a_name_is_needed() -> None:
    with pytest.raises(UserError, match="unsecuredLoginStringClaim_sub"):
        unsecured_token({}, 0)


def test_a_number_is_one() -> None:
    options = {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "long"}
    with pytest.raises(UserError, match="unsecuredLoginLifetimeSeconds is not a number"):
        unsecured_token(options, 0)


@pytest.mark.parametrize("token", ["", "opaque", "a.b", "a.!!!.c", "a.W10.c"])
def test_what_is_no_json_web_token_claims_nothing(token: str) -> None:
    assert claims_of(token) == {}


def test_claims_come_back() -> None:
    assert claims_of(encode_unsecured({"sub": "ä"})) == {"sub": "ä"}


# The broker's side, with our own client on the other


def validate(token: str) -> ValidToken:
    if token == "narrow":
        raise TokenRefusedError("too narrow", INSUFFICIENT_SCOPE, "read")
    if token != "good.token==":
        raise TokenRefusedError("it expired 5 s ago")
    return ValidToken("alice, of =the= north", 1234)


def server() -> OAuthBearerSaslServer:
    return OAuthBearerSaslServer(validate)


def test_our_client_is_let_in() -> None:
    client = OAuthBearerSaslClient(BearerToken("good.token==", extensions={"traceId": "1 2", "cluster": "x=y"}))
    broker = server()
    assert client.answer(broker.evaluate(client.first())) is None
    assert client.is_complete
    assert broker.is_complete
    assert (broker.user, broker.expires_ms) == ("alice, of =the= north", 1234)
    assert broker.extensions == {"traceId": "1 2", "cluster": "x=y"}


@pytest.mark.parametrize(
    ("token", "error"),
    [("bad", '{"status":"invalid_token"}'), ("narrow", '{"status":"insufficient_scope","scope":"read"}')],
)
def test_our_client_is_told_what_is_wrong(token: str, error: str) -> None:
    client = OAuthBearerSaslClient(BearerToken(token))
    broker = server()
    challenge = broker.evaluate(client.first())
    assert challenge.decode() == error
    assert broker.state is ServerState.CHALLENGED
    acknowledgement = client.answer(challenge)
    assert acknowledgement == b"\x01"
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        broker.evaluate(acknowledgement)
    assert caught.value.message == error
    assert broker.state is ServerState.FAILED
    assert broker.reason.startswith("the token is not accepted: ")
    assert broker.user == ""
    with pytest.raises(SaslRefused):
        client.answer(b"")


def test_there_is_no_second_attempt() -> None:
    broker = server()
    broker.evaluate(b"n,,\x01auth=Bearer bad\x01\x01")
    with pytest.raises(SaslAuthenticationFailedError, match="invalid credentials"):
        broker.evaluate(b"n,,\x01auth=Bearer good.token==\x01\x01")
    assert not broker.is_complete


@pytest.mark.parametrize(
    "first",
    [
        b"n,a=alice=2C of =3Dthe=3D north,\x01auth=bearer  good.token==\x01\x01",
        b"n,,\x01a=b\x01auth=BEARER good.token==\x01c=d\x01\x01",
    ],
)
def test_ways_to_say_the_same(first: bytes) -> None:
    broker = server()
    assert broker.evaluate(first) == b""
    assert broker.is_complete


def test_nobody_acts_for_another() -> None:
    with pytest.raises(SaslAuthenticationFailedError, match="authorization id that is different"):
        server().evaluate(b"n,a=bob,\x01auth=Bearer good.token==\x01\x01")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\x01",
        b"\xff",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good.token==\x01",
        b"n,,auth=Bearer good.token==\x01\x01",
        b"y,,\x01auth=Bearer good.token==\x01\x01",
        b"n,,\x01auth=Basic good.token==\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer two words\x01\x01",
        b"n,,\x01token=Bearer good.token==\x01\x01",
        b"n,,\x01auth=Bearer good.token==\x01\x01\x01",
        b"n,,\x01auth=Bearer good.token==\x01x1=2\x01\x01",
    ],
)
def test_a_first_message_that_is_none(first: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailedError, match="OAUTHBEARER"):
        server().evaluate(first)


@given(st.binary())
def test_whatever_comes_is_refused(message: bytes) -> None:
    broker = server()
    with pytest.raises(SaslAuthenticationFailedError):
        broker.evaluate(message)
    assert broker.state is ServerState.FAILED
