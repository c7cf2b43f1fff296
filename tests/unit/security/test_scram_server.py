"""The broker's side of SCRAM against the examples of the RFCs and against our own client."""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import nullcontext, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security import scram
from braidlog.security.credentials import Password
from braidlog.security.sasl_server import ServerState
from braidlog.security.scram import SHA_256, SHA_512, Mechanism, ScramSaslClient
from braidlog.security.scram_credentials import StoredCredential, UnknownUsers, credential_of
from braidlog.security.scram_server import ScramSaslServer

SHA_1 = Mechanism("SCRAM-SHA-1", "sha1", 4096)
NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


def stored(mechanism: Mechanism, password: str, salt: bytes = b"salt", iterations: int = 4096) -> StoredCredential:
    return credential_of(mechanism, salt, scram.salted_password(mechanism, password, salt, iterations), iterations)


def server_for(mechanism: Mechanism, users: dict[str, StoredCredential], nonce: str = "serverNonce") -> ScramSaslServer:
    unknown = UnknownUsers(b"hush")

    def find(user: str) -> tuple[bool, StoredCredential]:
        found = users.get(user)
        if found is not None:
            return True, found
        return False, unknown.credential(mechanism, user, next(iter(users.values()), None))

    return ScramSaslServer(mechanism, find, lambda: nonce)


@pytest.mark.parametrize(
    ("mechanism", "salt", "nonce", "messages"),
    [
        # RFC 5802, part 5
        (
            SHA_1,
            "QSXCR+Q6sek8bf92",
            "3rfcNHYJY1ZVvWVs7j",
            [
                "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
                "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            ],
        ),
        # RFC 7677, part 3
        (
            SHA_256,
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            [
                "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ],
        ),
    ],
)
def test_the_examples_of_the_rfcs(mechanism: Mechanism, salt: str, nonce: str, messages: list[str]) -> None:
    server = server_for(mechanism, {"user": stored(mechanism, "pencil", b64decode(salt))}, nonce)
    first, challenge, final, verdict = messages
    assert server.evaluate(first.encode()).decode() == challenge
    assert not server.is_complete
    assert server.evaluate(final.encode()).decode() == verdict
    assert server.is_complete
    assert server.user == "user"


@settings(max_examples=15, deadline=None)
@given(NAMES, st.sampled_from([SHA_256, SHA_512]))
def test_our_client_is_let_in_under_any_name(name: str, mechanism: Mechanism) -> None:
    client = ScramSaslClient(mechanism, Password(name, "s3cret"))
    server = server_for(mechanism, {name: stored(mechanism, "s3cret")})
    proof = client.answer(server.evaluate(client.first()))
    assert proof is not None
    assert client.answer(server.evaluate(proof)) is None
    assert client.is_complete
    assert server.is_complete
    assert server.user == name


@pytest.mark.parametrize(
    ("answered", "is_taken"),
    [
        ("clientNonceclientNonceserverNonce", True),  # as librdkafka 2.0, and so kcat, has it
        ("clientNonceserverNonceclientNonce", False),
        ("serverNonce", False),
    ],
)
def test_the_nonce_of_the_last_message(answered: str, is_taken: bool) -> None:
    server = server_for(SHA_256, {"alice": stored(SHA_256, "s3cret")})
    challenge = server.evaluate(b"n,,n=alice,r=clientNonce").decode()
    parsed = scram.parse_challenge(challenge)
    salted = scram.salted_password(SHA_256, "s3cret", parsed.salt, parsed.iterations)
    key = scram.client_key(SHA_256, salted)
    final = f"c=biws,r={answered}"
    signed = f"n=alice,r=clientNonce,{challenge},{final}"
    proof = scram.xor(key, scram.signature(SHA_256, scram.stored_key(SHA_256, key), signed))
    with nullcontext() if is_taken else pytest.raises(SaslAuthenticationFailedError):
        server.evaluate(f"{final},p={b64encode(proof).decode()}".encode())
    assert server.is_complete == is_taken


def test_an_unknown_user_is_refused_like_one_with_a_wrong_password() -> None:
    users = {"alice": stored(SHA_256, "s3cret", bytes(20), 8192)}
    refusals, challenges = [], []
    for name in ("alice", "mallory"):
        client = ScramSaslClient(SHA_256, Password(name, "guess"), lambda: "clientNonce")
        server = server_for(SHA_256, users)
        challenge = server.evaluate(client.first())
        challenges.append(scram.parse_challenge(challenge.decode()))
        proof = client.answer(challenge)
        assert proof is not None
        with pytest.raises(SaslAuthenticationFailedError) as caught:
            server.evaluate(proof)
        refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]
    assert {(len(each.salt), each.iterations) for each in challenges} == {(20, 8192)}
    # The same each time, or asking twice would tell.
    again = server_for(SHA_256, users).evaluate(b"n,,n=mallory,r=clientNonce")
    assert scram.parse_challenge(again.decode()).salt == challenges[1].salt


def test_a_proof_for_the_made_up_credential_of_nobody_is_not_enough() -> None:
    mechanism = SHA_256
    known = stored(mechanism, "guess")
    client = ScramSaslClient(mechanism, Password("mallory", "guess"))
    server = ScramSaslServer(mechanism, lambda user: (False, known))
    proof = client.answer(server.evaluate(client.first()))
    assert proof is not None
    with pytest.raises(SaslAuthenticationFailedError):
        server.evaluate(proof)


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n,,", b"n,,n=,r=x", b"n,,n=user", b"y,,n=user,r=x", b"p=tls-unique,,n=user,r=x", b"n,,m=1,n=user,r=x",
        b"n,,n=us=er,r=x", b"\xff", b"n,,n=user,r=\xc3\xa9", b"n,a=other,n=user,r=x",
    ],
)  # fmt: skip
def test_a_first_message_that_is_none(first: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailedError):
        server_for(SHA_256, {"user": stored(SHA_256, "s3cret")}).evaluate(first)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("r=", "r=x", 1),
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text[:-8] + "AAAAAAA=",
        lambda text: text.partition(",p=")[0],
        lambda text: text.partition(",p=")[0] + ",p=====",
        lambda text: text.partition(",p=")[0] + ",p=AAAA",
        lambda text: text + ",x=y",
    ],
)
def test_a_proof_that_was_tampered_with(change: object) -> None:
    assert callable(change)
    client = ScramSaslClient(SHA_256, Password("user", "s3cret"))
    server = server_for(SHA_256, {"user": stored(SHA_256, "s3cret")})
    proof = client.answer(server.evaluate(client.first()))
    assert proof is not None
    with pytest.raises(SaslAuthenticationFailedError):
        server.evaluate(change(proof.decode()).encode())


def test_extensions_are_kept_for_who_asks() -> None:
    server = server_for(SHA_256, {"user": stored(SHA_256, "s3cret")})
    server.evaluate(b"n,,n=user,r=abc,tokenauth=true")
    assert server.extensions == {"tokenauth": "true"}


@given(st.binary(max_size=80))
def test_whatever_comes_is_an_answer_or_a_refusal(message: bytes) -> None:
    server = server_for(SHA_256, {"user": stored(SHA_256, "s3cret")})
    with suppress(SaslAuthenticationFailedError):
        server.evaluate(message)
    assert server.state in (ServerState.CHALLENGED, ServerState.FAILED)
