"""What the mechanisms share on the broker's side."""

from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security.plain import PlainSaslServer, PlainUsers
from braidlog.security.sasl_server import TRANSITIONS, ServerState, refused, text_of


def test_an_authentication_is_used_once() -> None:
    server = PlainSaslServer(PlainUsers({"alice": "secret"}))
    assert server.evaluate(b"\0alice\0secret") == b""
    assert server.is_complete
    with pytest.raises(RuntimeError, match="start → complete"):
        server.evaluate(b"\0alice\0secret")


def test_a_refused_one_stays_refused() -> None:
    server = PlainSaslServer(PlainUsers({"alice": "secret"}))
    with pytest.raises(SaslAuthenticationFailedError):
        server.evaluate(b"\0alice\0wrong")
    assert server.state is ServerState.FAILED
    with pytest.raises(RuntimeError):
        server.evaluate(b"\0alice\0secret")


def test_the_table_ends_where_it_says() -> None:
    assert [state for state, further in TRANSITIONS.items() if not further] == [
        ServerState.COMPLETE,
        ServerState.FAILED,
    ]


def test_bytes_that_are_no_text_are_refused_like_anything_else() -> None:
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        text_of(b"\xff\xfe", "PLAIN")
    assert str(caught.value) == str(refused("PLAIN"))
