"""OAUTHBEARER: the message, the refusal, and what a token may be."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.security.credentials import BearerToken
from braidlog.security.oauthbearer import OAuthBearerSaslClient, claims_of, encode_unsecured, unsecured_token
from braidlog.security.sasl_client import SaslProtocolError, SaslRefused, State


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
