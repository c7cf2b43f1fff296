"""SCRAM against the examples of the RFCs, and against a server written from the RFC's formulas."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.security import scram
from braidlog.security.credentials import Password
from braidlog.security.sasl_client import SaslProtocolError, SaslRefused, State
from braidlog.security.scram import SHA_256, SHA_512, Mechanism, ScramSaslClient

SHA_1 = Mechanism("SCRAM-SHA-1", "sha1", 4096)
CLIENT_NONCE = "fyko+d2lbbFgONRv9qkxdawL"


@pytest.mark.parametrize(
    ("mechanism", "nonce", "first", "challenge", "proof", "verdict"),
    [
        # RFC 5802, part 5
        (
            SHA_1,
            "fyko+d2lbbFgONRv9qkxdawL",
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
        # RFC 7677, part 3
        (
            SHA_256,
            "rOprNGfwEbeRWgbNEkqO",
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
    ids=["RFC 5802", "RFC 7677"],
)
def test_the_examples_of_the_rfcs(
    mechanism: Mechanism, nonce: str, first: str, challenge: str, proof: str, verdict: str
) -> None:
    exchange = ScramSaslClient(mechanism, Password("user", "pencil"), lambda: nonce)
    assert exchange.first() == first.encode()
    assert exchange.answer(challenge.encode()) == proof.encode()
    assert not exchange.is_complete
    assert exchange.answer(verdict.encode()) is None
    assert exchange.is_complete


class Server:
    """Knows a user's stored and server key, not the password; written from RFC 5802 part 3 alone."""

    def __init__(self, hash_name: str, password: str, salt: bytes = b"some salt", iterations: int = 4096) -> None:
        self.hash_name = hash_name
        self.salt = salt
        self.iterations = iterations
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        self.stored_key = hashlib.new(hash_name, self.hmac(salted, b"Client Key")).digest()
        self.server_key = self.hmac(salted, b"Server Key")
        self.username = ""
        self.extensions = ""

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.hash_name).digest()

    def challenge(self, client_first: bytes) -> bytes:
        gs2, self.bare = client_first[:3], client_first[3:]
        assert gs2 == b"n,,"
        name, nonce, *extensions = self.bare.split(b",")
        self.username = name.removeprefix(b"n=").replace(b"=2C", b",").replace(b"=3D", b"=").decode()
        self.extensions = b",".join(extensions).decode()
        self.nonce = nonce.removeprefix(b"r=") + b"server"
        self.first = b"r=%s,s=%s,i=%d" % (self.nonce, base64.b64encode(self.salt), self.iterations)
        return self.first

    def verdict(self, client_final: bytes) -> bytes:
        without_proof, _, proof = client_final.rpartition(b",p=")
        assert without_proof == b"c=biws,r=" + self.nonce
        message = b",".join((self.bare, self.first, without_proof))
        signature = self.hmac(self.stored_key, message)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash_name, key).digest() != self.stored_key:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(self.hmac(self.server_key, message))


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


@settings(max_examples=25)
@given(st.sampled_from([SHA_256, SHA_512]), TEXT, TEXT, st.binary(min_size=1, max_size=40))
def test_any_user_is_let_in(mechanism: Mechanism, username: str, password: str, salt: bytes) -> None:
    server = Server(mechanism.hash_name, password, salt)
    exchange = ScramSaslClient(mechanism, Password(username, password))
    proof = exchange.answer(server.challenge(exchange.first()))
    assert server.username == username
    assert proof is not None
    assert exchange.answer(server.verdict(proof)) is None
    assert exchange.is_complete


def test_the_wrong_password() -> None:
    server = Server("sha256", "right")
    exchange = ScramSaslClient(SHA_256, Password("alice", "wrong"))
    proof = exchange.answer(server.challenge(exchange.first()))
    assert proof is not None
    with pytest.raises(SaslRefused, match="invalid-proof"):
        exchange.answer(server.verdict(proof))
    assert exchange.state is State.FAILED


def test_a_server_that_does_not_know_the_password() -> None:
    """It lets everybody in, to hear what they say: its signature gives it away."""
    exchange = ScramSaslClient(SHA_256, Password("alice", "secret"))
    exchange.answer(Server("sha256", "guess").challenge(exchange.first()))
    with pytest.raises(SaslProtocolError, match="not the broker it claims to be") as caught:
        exchange.answer(b"v=" + base64.b64encode(b"\0" * 32))
    assert "secret" not in str(caught.value)
    assert not exchange.is_complete


def test_a_delegation_token_goes_along() -> None:
    server = Server("sha512", "hmac of the token")
    exchange = ScramSaslClient(SHA_512, Password("token id", "hmac of the token", {"tokenauth": "true"}))
    proof = exchange.answer(server.challenge(exchange.first()))
    assert server.extensions == "tokenauth=true"
    assert proof is not None
    assert exchange.answer(server.verdict(proof)) is None


@pytest.mark.parametrize(
    ("challenge", "reported"),
    [
        (b"", "malformed"),
        (b"\xff", "no text"),
        (b"r=abcd,s=QSXC", "malformed"),
        (b"m=ext,r=abcd,s=QSXC,i=4096", "malformed"),
        (b"s=QSXC,r=abcd,i=4096", "malformed"),
        (b"r=elsewhere,s=QSXC,i=4096", "not ours"),
        (b"r=abc,s=QSXC,i=4096", "not ours"),
        (b"r=abcd,s=Q!XC,i=4096", "base64"),
        (b"r=abcd,s=QSXC,i=4095", "4096 to"),
        (b"r=abcd,s=QSXC,i=999999999", "to 2000000"),
        (b"r=abcd,s=QSXC,i=-1", "number of iterations"),
        ("r=abcd,s=QSXC,i=４０９６".encode(), "number of iterations"),
        (b"e=unknown-user", "unknown-user"),
    ],
)
def test_challenges_that_are_none(challenge: bytes, reported: str) -> None:
    exchange = ScramSaslClient(SHA_256, Password("alice", "secret"), lambda: "abc")
    exchange.first()
    with pytest.raises((SaslProtocolError, SaslRefused), match=reported):
        exchange.answer(challenge)
    assert exchange.state is State.FAILED


@given(st.binary(max_size=60))
def test_no_answer_of_a_server_breaks_the_exchange(noise: bytes) -> None:
    exchange = ScramSaslClient(SHA_256, Password("alice", "secret"), lambda: "abc")
    exchange.first()
    with pytest.raises((SaslProtocolError, SaslRefused)):
        exchange.answer(noise)


def test_nonces_differ_and_hold_no_comma() -> None:
    nonces = {scram.new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert not any("," in nonce for nonce in nonces)
