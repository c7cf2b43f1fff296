from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.security.credentials import BearerToken, Password


def test_secrets_do_not_show_themselves() -> None:
    assert "s3cret" not in repr(Password("alice", "s3cret"))
    assert "abc" not in repr(BearerToken("abc"))


@pytest.mark.parametrize(("username", "password", "setting"), [("", "p", "sasl.username"), ("u", "", "sasl.password")])
def test_empty_ones_name_the_setting(username: str, password: str, setting: str) -> None:
    with pytest.raises(UserError, match=setting):
        Password(username, password)


@pytest.mark.parametrize("token", ["", "a b", "a\n", "a,b", "=abc", "tökén"])
def test_what_is_no_bearer_token(token: str) -> None:
    with pytest.raises(UserError, match="characters that no bearer token has"):
        BearerToken(token)


@pytest.mark.parametrize("token", ["abc", "a-._~+/9==", "eyJhbGciOiJub25lIn0.e30."])
def test_what_is_one(token: str) -> None:
    assert BearerToken(token).value == token


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"ok": ""}, {"ok": "\0"}, {"ok": "ä"}])
def test_extensions_that_cannot_be_sent(extensions: dict[str, str]) -> None:
    with pytest.raises(UserError, match="SASL extension"):
        BearerToken("abc", extensions=extensions)


def test_extensions_that_can() -> None:
    assert BearerToken("abc", extensions={"logicalCluster": "lkc 1\t2"}).extensions
