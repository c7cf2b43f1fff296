"""PLAIN: one message, and an empty answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security.credentials import Password
from braidlog.security.plain import PlainSaslClient, PlainSaslServer, PlainUsers, plain_users
from braidlog.security.sasl_client import SaslProtocolError, State

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


def test_the_example_of_the_rfc() -> None:
    exchange = PlainSaslClient(Password("tim", "tanstaaftanstaaf"))
    assert exchange.first() == b"\0tim\0tanstaaftanstaaf"
    assert exchange.answer(b"") is None
    assert exchange.is_complete


@given(TEXT, TEXT)
def test_any_name_and_password(username: str, password: str) -> None:
    authzid, name, secret = PlainSaslClient(Password(username, password)).first().split(b"\0")
    assert (authzid, name.decode(), secret.decode()) == (b"", username, password)


def test_a_challenge_is_no_part_of_it() -> None:
    exchange = PlainSaslClient(Password("alice", "secret"))
    exchange.first()
    with pytest.raises(SaslProtocolError):
        exchange.answer(b"more?")
    assert exchange.state is State.FAILED


def test_nul_separates() -> None:
    with pytest.raises(UserError, match="NUL"):
        PlainSaslClient(Password("a\0b", "c"))


def test_what_is_empty_is_said() -> None:
    with pytest.raises(UserError, match=r"sasl\.username"):
        Password("", "x")
    with pytest.raises(UserError, match=r"sasl\.password"):
        Password("x", "")


def server() -> PlainSaslServer:
    return PlainSaslServer(
        plain_users({"username": "broker", "password": "own", "user_alice": "s3cret", "user_b": "é"})
    )


@pytest.mark.parametrize("message", ["\0alice\0s3cret", "alice\0alice\0s3cret", "\0b\0é"])
def test_a_known_user_is_let_in(message: str) -> None:
    asked = server()
    assert asked.evaluate(message.encode()) == b""
    assert asked.is_complete
    assert asked.user == message.split("\0")[1]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("\0alice\0wrong", "Invalid username or password"),
        ("\0mallory\0s3cret", "Invalid username or password"),
        # What the broker logs in with elsewhere is no user of it.
        ("\0broker\0own", "Invalid username or password"),
        ("\0\0s3cret", "username not specified"),
        ("\0alice\0", "password not specified"),
        ("mallory\0alice\0s3cret", "different from username"),
        ("alice", "expected 3 tokens, got 1"),
        ("\0a\0b\0c\0d\0e", "expected 3 tokens, got 4"),
    ],
)
def test_others_are_refused_without_a_word_about_the_password(message: str, text: str) -> None:
    asked = server()
    with pytest.raises(SaslAuthenticationFailedError, match=text) as caught:
        asked.evaluate(message.encode())
    assert "s3cret" not in str(caught.value)
    assert not asked.is_complete


def test_users_do_not_show_their_passwords() -> None:
    assert repr(PlainUsers({"alice": "s3cret"})) == "PlainUsers(alice)"
    assert "s3cret" not in str(vars(PlainUsers({"alice": "s3cret"})))
