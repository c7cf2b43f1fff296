"""Which tokens are good, and what is wrong with the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.security.json_web_keys import JsonWebKeySet, parse_key_set
from braidlog.security.oauthbearer import encode_unsecured
from braidlog.security.token_validation import (
    SignedTokenValidator,
    TokenRefusedError,
    TokenRules,
    UnsecuredTokenValidator,
    ValidToken,
)
from support.token_issuer import Issuer, base64url, key_set, part

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
ISSUER = Issuer()
KEYS = parse_key_set(key_set(ISSUER.published()))
RULES = TokenRules(audience=("braidlog", "kafka"), issuer="https://idp.example.com")
CLAIMS = {
    "sub": "alice", "iss": "https://idp.example.com", "aud": "kafka", "iat": NOW - 5, "exp": NOW + 60, "scope": "a b",
}  # fmt: skip


def validator(rules: TokenRules = RULES, keys: JsonWebKeySet = KEYS) -> SignedTokenValidator:
    return SignedTokenValidator(rules, lambda: keys, lambda: NOW_MS)


def refusal(token: str, rules: TokenRules = RULES) -> TokenRefusedError:
    with pytest.raises(TokenRefusedError) as caught:
        validator(rules)(token)
    for secret in token.split("."):
        assert not secret or secret not in str(caught.value)
    return caught.value


def test_a_good_token() -> None:
    assert validator()(ISSUER.token(CLAIMS)) == ValidToken("alice", (NOW + 60) * 1000)
    assert validator()(ISSUER.token(CLAIMS, "PS512")).user == "alice"
    several = {**CLAIMS, "aud": ["other", "braidlog"], "scope": ["a"], "nbf": NOW + 29, "exp": NOW + 60.5}
    assert validator()(ISSUER.token(several)).expires_ms == NOW_MS + 60_500


def test_without_expectations_any_issuer_and_audience_will_do() -> None:
    claims = {"email": "alice@example.com", "iat": NOW, "exp": NOW + 1}
    assert validator(TokenRules(sub_claim="email"))(ISSUER.token(claims)).user == "alice@example.com"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exp": NOW - 30}, "it expired 30 s ago"),
        ({"exp": None}, "exp is missing"),
        ({"exp": "soon"}, "its exp is not a time"),
        ({"exp": True}, "its exp is not a time"),
        ({"exp": 1e300}, "its exp is not a time"),
        ({"exp": -1}, "its exp is not a time"),
        ({"exp": 10**400}, "its exp is not a time"),
        ({"iat": None}, "iat is missing"),
        ({"iat": NOW + 60}, "expires before it was issued"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iss": "https://evil.example.com"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": [["kafka"], {"kafka": 1}]}, "aud"),
        ({"sub": None}, "names no user"),
        ({"sub": " "}, "names no user"),
        ({"sub": 5}, "names no user"),
        ({"scope": 5}, "its scopes"),
        ({"scope": ["a", 1]}, "its scopes"),
    ],
)
def test_claims_that_do_not_let_anybody_in(change: dict[str, Any], why: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **change}.items() if value is not None}
    problem = refusal(ISSUER.token(claims))
    assert why in str(problem)
    assert (problem.status, problem.scope) == ("invalid_token", "")


def test_clocks_may_differ_a_little() -> None:
    late = ISSUER.token({**CLAIMS, "iat": NOW - 90, "exp": NOW - 29})
    assert validator()(late).expires_ms == (NOW - 29) * 1000
    assert "expired 29 s ago" in str(refusal(late, TokenRules(clock_skew_s=29)))


def test_a_signature_of_somebody_else() -> None:
    assert "signature is wrong" in str(refusal(Issuer(number=1).token(CLAIMS)))
    header, _, signature = ISSUER.token(CLAIMS).split(".")
    forged = part({**CLAIMS, "sub": "admin"})
    assert "signature is wrong" in str(refusal(f"{header}.{forged}.{signature}"))


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "EdDSA", "", 5, None, ["RS256"]])
def test_no_other_algorithm(algorithm: object) -> None:
    claims = part(CLAIMS)
    assert "signed with none of" in str(refusal(f"{part({'alg': algorithm})}.{claims}."))
    assert "signed with none of" in str(refusal(f"{part({'alg': algorithm, 'kid': 'k1'})}.{claims}.{base64url(b'x')}"))


def test_a_public_key_is_no_secret() -> None:
    """HS256 with the published key as its secret is an old trick."""
    import hashlib
    import hmac

    signed = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{part(CLAIMS)}"
    mac = hmac.digest(key_set(ISSUER.published()).encode(), signed.encode(), hashlib.sha256)
    refusal(f"{signed}.{base64url(mac)}")


def test_an_unknown_key_is_told_to_who_fetches_them() -> None:
    asked: list[str] = []
    validate = SignedTokenValidator(RULES, lambda: KEYS, lambda: NOW_MS, lambda: asked.append("again"))
    for token in (Issuer("k2").token(CLAIMS), Issuer("k1", "P-256").token(CLAIMS)):
        with pytest.raises(TokenRefusedError, match=r"no key 'k[12]' for"):
            validate(token)
    assert asked == ["again", "again"]
    with pytest.raises(TokenRefusedError, match="signature"):
        validate(Issuer(number=1).token(CLAIMS))
    assert asked == ["again", "again"]


def test_a_token_that_names_no_key_is_tried_with_all() -> None:
    keys = parse_key_set(key_set(Issuer("other", number=1).published(), ISSUER.published()))
    nameless = Issuer(None)
    assert validator(keys=keys)(nameless.token(CLAIMS)).user == "alice"


def test_headers_that_ask_for_more() -> None:
    assert "crit" in str(refusal(ISSUER.token(CLAIMS, crit=["b64"], b64=False)))
    assert "kid is not text" in str(refusal(ISSUER.token(CLAIMS, kid=["k1"])))


DEEP = base64url(b"[" * 9_999)


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c.d", "...", "e30.e30.", "W10.W10.", f"{DEEP}.a.a"])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(TokenRefusedError):
        validator()(token)
    with pytest.raises(TokenRefusedError):
        UnsecuredTokenValidator({}, lambda: NOW_MS)(token)


@given(st.text() | st.lists(st.text(), min_size=3, max_size=3).map(".".join))
def test_whatever_comes_is_refused(token: str) -> None:
    for validate in (validator(), UnsecuredTokenValidator({}, lambda: NOW_MS)):
        with pytest.raises(TokenRefusedError):
            validate(token)


# Unsecured


def unsecured(options: dict[str, str], claims: dict[str, Any]) -> ValidToken:
    return UnsecuredTokenValidator(options, lambda: NOW_MS)(encode_unsecured(claims))


def test_an_unsecured_token() -> None:
    claims = {"sub": "alice", "exp": NOW + 1}
    assert unsecured({}, claims) == ValidToken("alice", NOW_MS + 1000)
    options = {"unsecuredValidatorPrincipalClaimName": "name", "unsecuredLoginStringClaim_sub": "broker"}
    assert unsecured(options, {**claims, "name": "bob"}).user == "bob"
    late = {"sub": "alice", "exp": NOW - 2, "iat": NOW - 9}
    assert unsecured({"unsecuredValidatorAllowableClockSkewMs": "3000"}, late).user == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "alice"},
        {"sub": "alice", "exp": NOW},
        {"sub": "alice", "exp": NOW + 5, "iat": NOW + 1},
        {"sub": "alice", "exp": NOW + 5, "iat": NOW + 5},
        {"exp": NOW + 5},
    ],
)
def test_unsecured_claims_that_do_not_let_anybody_in(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefusedError) as caught:
        unsecured({}, claims)
    assert caught.value.status == "invalid_token"


def test_scopes_that_are_required() -> None:
    options = {"unsecuredValidatorRequiredScope": "read write", "unsecuredValidatorScopeClaimName": "scp"}
    claims = {"sub": "alice", "exp": NOW + 1}
    assert unsecured(options, {**claims, "scp": ["write", "more", "read"]}).user == "alice"
    for scopes in ({}, {"scope": "read write"}, {"scp": "read"}):
        with pytest.raises(TokenRefusedError) as caught:
            unsecured(options, {**claims, **scopes})
        assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "read write")


def test_a_signed_token_is_not_an_unsecured_one() -> None:
    validate = UnsecuredTokenValidator({}, lambda: NOW_MS)
    with pytest.raises(TokenRefusedError, match="it is signed"):
        validate(ISSUER.token(CLAIMS))
    with pytest.raises(TokenRefusedError, match="it is signed"):
        validate(encode_unsecured(CLAIMS) + "c2ln")


@pytest.mark.parametrize(
    "options", [{"unsecuredValidatorAllowableClockSkewMs": "soon"}, {"unsecuredValidatorNonsense": "1"}]
)
def test_options_that_make_no_sense(options: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"sasl\.jaas\.config"):
        UnsecuredTokenValidator(options, lambda: NOW_MS)
