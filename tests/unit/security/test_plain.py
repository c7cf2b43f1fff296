"""PLAIN: one message, and an empty answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.security.credentials import Password
from braidlog.security.plain import PlainSaslClient
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
