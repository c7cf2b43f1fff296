"""From settings to exchanges."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.core.errors import UserError
from braidlog.security.credentials import BearerToken, Password
from braidlog.security.login import Login, as_token, login_of
from braidlog.security.oauthbearer import encode_unsecured

PACKAGE = "org.apache.kafka.common.security"
SCRAM_JAAS = f'{PACKAGE}.scram.ScramLoginModule required username="alice" password="secret"'


def login(mechanism: str, **given: Any) -> Login:
    return login_of(mechanism, now_ms=lambda: 0, **given)


def test_by_name_and_password() -> None:
    made = login("PLAIN", username="alice", password="secret")
    assert made.credentials() == Password("alice", "secret")
    assert made.sasl_client(made.credentials()).first() == b"\0alice\0secret"
    assert not made.is_blocking


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_by_jaas(mechanism: str) -> None:
    made = login(mechanism, jaas_config=f"{SCRAM_JAAS};")
    assert made.credentials() == Password("alice", "secret")
    assert made.sasl_client(made.credentials()).named() == mechanism


def test_a_delegation_token() -> None:
    made = login("SCRAM-SHA-256", jaas_config=f'{SCRAM_JAAS} tokenauth="true";')
    assert made.credentials() == Password("alice", "secret", {"tokenauth": "true"})


def test_the_simple_settings_win() -> None:
    made = login("SCRAM-SHA-256", jaas_config=f"{SCRAM_JAAS};", password="newer")
    assert made.credentials() == Password("alice", "newer")


def test_an_unsecured_token() -> None:
    module = f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
    token = login("OAUTHBEARER", jaas_config=module).credentials()
    assert isinstance(token, BearerToken)
    assert token.principal == "alice"


def test_a_provider_is_asked_each_time() -> None:
    tokens = iter(["one", "two"])
    made = login("OAUTHBEARER", token_provider=lambda: next(tokens))
    assert made.is_blocking
    assert [
        b"one" in made.sasl_client(made.credentials()).first(),
        b"two" in made.sasl_client(made.credentials()).first(),
    ] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("mechanism", "given", "reported"),
    [
        ("GSSAPI", {}, r"Kerberos.*set it to one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ("SCRAM", {}, "'SCRAM' is unknown"),
        ("PLAIN", {}, r"needs a user name: set sasl\.username"),
        ("PLAIN", {"username": "alice"}, r"needs a password: set sasl\.password"),
        ("PLAIN", {"jaas_config": f"{SCRAM_JAAS};"}, "has a ScramLoginModule, but sasl.mechanism PLAIN wants Plain"),
        ("OAUTHBEARER", {}, "sasl_oauth_token_provider"),
        ("OAUTHBEARER", {"token_provider": "a.b.C"}, "a function that returns a token"),
        ("OAUTHBEARER",
            {"jaas_config": f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginNumberClaim_a="1";'},
            "unsecuredLoginStringClaim_sub"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(mechanism: str, given: dict[str, Any], reported: str) -> None:
    with pytest.raises(UserError, match=reported):
        login(mechanism, **given)


def test_what_a_provider_may_return() -> None:
    assert as_token("opaque") == BearerToken("opaque")
    assert as_token(("opaque", 12.5)) == BearerToken("opaque", 12_500)
    assert as_token(BearerToken("x", 1)) == BearerToken("x", 1)
    web_token = encode_unsecured({"exp": 99})
    assert as_token(web_token) == BearerToken(web_token, 99_000)
    with pytest.raises(UserError, match="returned int"):
        as_token(3)
    with pytest.raises(UserError, match="returned tuple"):
        as_token(("s3cret", "soon"))
