"""Keys as issuers publish them, and signatures that they made or did not."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.security import json_web_keys
from braidlog.security.json_web_keys import (
    ALGORITHMS,
    BadKeySetError,
    from_base64url,
    is_signed_by,
    parse_key_set,
    require_cryptography,
)
from support.token_issuer import Issuer, base64url, key_set

KIND = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


def split(token: str) -> tuple[bytes, bytes]:
    signed, _, signature = token.rpartition(".")
    return signed.encode(), from_base64url(signature)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signature_is_of_its_key_and_text(algorithm: str) -> None:
    issuer = Issuer(kind=KIND.get(algorithm, "RSA"))
    (key,) = parse_key_set(key_set(issuer.published())).candidates("k1", algorithm)
    signed, signature = split(issuer.token({"sub": "alice"}, algorithm))
    assert is_signed_by(key, algorithm, signed, signature)
    assert not is_signed_by(key, algorithm, signed + b"x", signature)
    assert not is_signed_by(key, algorithm, signed, signature[:-1])
    assert not is_signed_by(key, algorithm, signed, bytes(len(signature)))
    other = Issuer(kind=KIND.get(algorithm, "RSA"), number=1)
    assert not is_signed_by(key, algorithm, *split(other.token({"sub": "alice"}, algorithm)))


def test_which_keys_may_have_signed() -> None:
    rsa_row, ec_row = Issuer("r").published(alg="RS256"), Issuer("e", "P-256").published()
    keys = parse_key_set(key_set(rsa_row, ec_row, Issuer(None, "P-384").published()))
    assert [key.kid for key in keys.candidates("r", "RS256")] == ["r"]
    # It says itself what it is for.
    assert keys.candidates("r", "PS256") == []
    assert keys.candidates("e", "ES384") == []
    assert keys.candidates("nobody", "RS256") == []
    assert [key.curve for key in keys.candidates(None, "ES384")] == ["P-384"]
    assert "r, e" in repr(keys)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"use": "enc"}, "not for signatures"),
        ({"key_ops": ["encrypt"]}, "not for signatures"),
        ({"key_ops": 5}, "not iterable"),
        ({"alg": "HS256"}, "its algorithm is none of RS256"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "neither RSA nor EC"),
        ({"kty": "EC", "crv": "secp256k1"}, "its curve is none of P-256"),
        ({"kty": "EC", "crv": []}, "unhashable"),
        ({"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}, ""),
        ({"n": ""}, "it has no n"),
        ({"e": "*"}, "not base64url"),
        ({"kid": 7}, "its kid is not text"),
    ],
)
def test_a_key_that_cannot_be_used_does_not_spoil_the_others(change: dict[str, Any], why: str) -> None:
    bad = {**Issuer("bad").published(), **change}
    keys = parse_key_set(key_set(bad, Issuer("good").published()))
    assert [key.kid for key in keys.keys] == ["good"]
    (skipped,) = keys.skipped
    assert skipped.startswith("key 1: ")
    assert why in skipped
    with pytest.raises(BadKeySetError, match="no key that can be used; key 1"):
        parse_key_set(key_set(bad))


def test_a_short_key_is_none() -> None:
    public = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    row = {"kty": "RSA", "n": base64url(public.n.to_bytes(128, "big")), "e": "AQAB"}
    with pytest.raises(BadKeySetError, match="2048 bits or more"):
        parse_key_set(key_set(row))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"keys": 1}', '{"keys": []}', "[" * 100_000, b"\xff", '{"keys": [1]}']
)
def test_what_is_no_key_set(text: str | bytes) -> None:
    with pytest.raises(BadKeySetError):
        parse_key_set(text)


VALUES = st.none() | st.integers() | st.sampled_from(["RSA", "EC", "P-256", "sig", "AQAB", "*", "ä"]) | st.just([])
NAMES = ["kty", "crv", "n", "e", "x", "y", "kid", "use", "alg", "key_ops"]


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_whatever_is_published_is_a_key_or_skipped(row: dict[str, Any]) -> None:
    with pytest.raises(BadKeySetError):
        parse_key_set(key_set(row))


@pytest.mark.parametrize("text", ["", "a", "a=", "a b", "ä", "YQ=="])
def test_base64url_is_strict(text: str) -> None:
    with pytest.raises(ValueError):
        from_base64url(text)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_cryptography()

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(json_web_keys, "import_module", missing)
    with pytest.raises(UserError, match=r"pip install 'braidlog\[oauth\]'"):
        require_cryptography()
