"""OAUTHBEARER: the message, the refusal, and what a token may be."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.security.credentials import BearerToken
from braidlog.security.oauthbearer import OAuthBearerSaslClient
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
