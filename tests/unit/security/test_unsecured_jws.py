"""Unsecured tokens from the options of Kafka's login module."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.security.unsecured_jws import claims_of, encode_unsecured, unsecured_token


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
