"""Stored SCRAM credentials in Kafka's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.security import scram
from braidlog.security.scram import SHA_256, SHA_512
from braidlog.security.scram_credentials import (
    BadCredentialError,
    StoredCredential,
    UnknownUsers,
    credential_of,
    decode_credential,
    encode_credential,
)

# Written by Kafka's kafka-configs for the salt and password below.
SALT = b"1k5tdcbgmw2ja6ggb58iqlk0j8"


def test_kafkas_own_text() -> None:
    salted = scram.salted_password(SHA_256, "alice-secret", SALT, 8192)
    text = encode_credential(credential_of(SHA_256, SALT, salted, 8192))
    names = [part.partition("=")[0] for part in text.split(",")]
    assert names == ["salt", "stored_key", "server_key", "iterations"]
    assert text.startswith("salt=MWs1dGRjYmdtdzJqYTZnZ2I1OGlxbGswajg=,stored_key=")
    assert text.endswith(",iterations=8192")


@given(st.binary(), st.binary(), st.binary(), st.integers(0, 2**31))
def test_it_comes_back(salt: bytes, stored_key: bytes, server_key: bytes, iterations: int) -> None:
    credential = StoredCredential(salt, stored_key, server_key, iterations)
    assert decode_credential(encode_credential(credential)) == credential


@pytest.mark.parametrize(
    "text", ["", "salt=AAAA", "salt=A,stored_key=AAAA,server_key=AAAA,iterations=4096",
             "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=many",
             "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096,more=1"],
)  # fmt: skip
def test_what_is_none_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(BadCredentialError) as caught:
        decode_credential(text)
    assert "AAAA" not in str(caught.value)


def test_a_credential_does_not_show_its_keys() -> None:
    credential = credential_of(SHA_512, b"salt", b"salted", 4096)
    assert repr(credential) == "StoredCredential(iterations=4096)"


def test_unknown_users_look_like_known_ones_and_stay_the_same() -> None:
    unknown = UnknownUsers(b"secret")
    like = credential_of(SHA_256, bytes(100), b"salted", 10_000)
    first = unknown.credential(SHA_256, "mallory", like)
    assert (len(first.salt), first.iterations, len(first.stored_key)) == (100, 10_000, 32)
    assert unknown.credential(SHA_256, "mallory", like) == first
    assert unknown.credential(SHA_256, "trudy", like).salt != first.salt
    assert UnknownUsers(b"another").credential(SHA_256, "mallory", like).salt != first.salt
    assert unknown.credential(SHA_512, "mallory", None).iterations == 4096
