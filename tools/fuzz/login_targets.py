"""Logins: whoever connects can send these before anything is known about it."""

from __future__ import annotations

import json
import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.net.outbound.errors import ClientError
from braidlog.security import scram
from braidlog.security.credentials import BearerToken, Password
from braidlog.security.delegation_tokens import TokenLogin, TokenSecret, password_of
from braidlog.security.gssapi_server import GssapiSaslServer, GssError
from braidlog.security.json_web_keys import BadKeySetError, JsonWebKeySet, parse_key_set
from braidlog.security.kerberos_names import parse_principal_rules
from braidlog.security.oauthbearer import OAuthBearerSaslClient, OAuthBearerSaslServer, encode_unsecured
from braidlog.security.plain import PlainSaslClient, PlainSaslServer, PlainUsers
from braidlog.security.sasl_client import SaslClient, SaslProtocolError, SaslRefused
from braidlog.security.sasl_server import SaslServer
from braidlog.security.scram import SHA_256, ScramSaslClient
from braidlog.security.scram_credentials import (
    BadCredentialError,
    StoredCredential,
    UnknownUsers,
    credential_of,
    decode_credential,
    encode_credential,
)
from braidlog.security.scram_server import ScramSaslServer
from braidlog.security.token_validation import SignedTokenValidator, TokenRules, UnsecuredTokenValidator
from tools.fuzz.target import Target

_NOW_MS = 1_700_000_000_000
_SECRET = TokenSecret("hush")
_SALT = b"0123456789"


def _messages(data: bytes) -> list[bytes]:
    """A conversation: each message after its length, in two bytes."""
    found: list[bytes] = []
    at = 0
    while len(data) - at >= 2 and len(found) < 6:
        size = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def _said(*messages: bytes) -> bytes:
    return b"".join(struct.pack(">H", len(each)) + each for each in messages)


def _converse(server: SaslServer, data: bytes, knows: Callable[[str], bool]) -> None:
    """Whoever is let in is somebody known, and has a name that can be written down."""
    for message in _messages(data):
        if server.is_complete:
            break
        server.evaluate(message)
    if server.is_complete:
        server.user.encode()
        if not knows(server.user):
            raise AssertionError(f"{server.user!r} was let in")


# Passwords


def plain(data: bytes) -> None:
    _converse(PlainSaslServer(PlainUsers({"alice": "secret", "bob": "ä"})), data, {"alice", "bob"}.__contains__)


def plain_conversations() -> Sequence[bytes]:
    return [
        _said(b"\0alice\0secret"),
        _said("bob\0bob\0ä".encode()),
        _said(b"\0alice\0wrong"),
        _said(b"a\0alice\0secret"),
    ]


@cache
def _stored() -> StoredCredential:
    return credential_of(SHA_256, _SALT, scram.salted_password(SHA_256, "secret", _SALT, 4096), 4096)


@cache
def _unknown() -> UnknownUsers:
    return UnknownUsers(b"hush")


@cache
def _token_credential(token_id: str) -> StoredCredential:
    return _SECRET.credential(SHA_256, token_id)


def _scram_server() -> ScramSaslServer:
    def find(user: str) -> tuple[bool, StoredCredential]:
        return (True, _stored()) if user == "alice" else (False, _unknown().credential(SHA_256, user, _stored()))

    def find_token(token_id: str) -> tuple[TokenLogin | None, StoredCredential]:
        if token_id == "token-1":
            return TokenLogin("owner", _NOW_MS), _token_credential(token_id)
        return None, _unknown().credential(SHA_256, token_id, None)

    return ScramSaslServer(SHA_256, find, lambda: "servernonce", find_token)


def scram_login(data: bytes) -> None:
    _converse(_scram_server(), data, {"alice", "owner"}.__contains__)


@cache
def scram_conversations() -> Sequence[bytes]:
    found = [_said(b"n,,n=nobody,r=nonce", b"c=biws,r=nonceservernonce,p=AAAA"), _said(b"y,,n=a=2Cb,r=x")]
    of_token = Password("token-1", password_of(_SECRET.hmac("token-1")), {"tokenauth": "true"})
    for who in (Password("alice", "secret"), Password("alice", "wrong"), of_token):
        client, server = ScramSaslClient(SHA_256, who, lambda: "clientnonce"), _scram_server()
        first = client.first()
        proof = client.answer(server.evaluate(first))
        found.append(_said(first, proof or b""))
    return found


def scram_credential(data: bytes) -> None:
    """As it lies in the store."""
    credential = decode_credential(_text(data))
    if decode_credential(encode_credential(credential)) != credential:
        raise AssertionError("a credential is another one after it was written")


def scram_credentials() -> Sequence[bytes]:
    return [encode_credential(_stored()).encode()]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# Tokens


def _unsecured(token: str) -> Any:
    return UnsecuredTokenValidator({"unsecuredValidatorAllowableClockSkewMs": "3000"}, lambda: _NOW_MS)(token)


def bearer(data: bytes) -> None:
    _converse(OAuthBearerSaslServer(_unsecured), data, lambda user: bool(user.strip()))


def _claims(**claims: object) -> dict[str, object]:
    return {"sub": "alice", "iat": _NOW_MS / 1000, "exp": _NOW_MS / 1000 + 60, **claims}


def bearer_conversations() -> Sequence[bytes]:
    tokens = [encode_unsecured(_claims()), encode_unsecured(_claims(scope=["a"], exp=1)), "a.b.c", ""]
    found = [_said(f"n,,\x01auth=Bearer {token}\x01\x01".encode(), b"\x01") for token in tokens]
    return [*found, _said(f"n,a=alice,\x01auth=Bearer {tokens[0]}\x01traceId=1\x01\x01".encode())]


@cache
def _signing_key() -> tuple[Any, JsonWebKeySet, str]:
    """Always the same: what is found must be found again."""
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.derive_private_key(0x1234567890ABCDEF1234567890ABCDEF, ec.SECP256R1())
    numbers = private.public_key().public_numbers()
    x, y = (_base64(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
    text = json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "x": x, "y": y}]})
    return private, parse_key_set(text), text


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def signed_claims(data: bytes) -> None:
    """The header and the claims, as two messages; the signature is right, as an issuer would make it."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    private, keys, _ = _signing_key()
    header, claims, *_ = [*_messages(data), b"", b""]
    signed = f"{_base64(header)}.{_base64(claims)}"
    r, s = decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    token = f"{signed}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
    validate = SignedTokenValidator(TokenRules(audience=("kafka",)), lambda: keys, lambda: _NOW_MS)
    said = _said(f"n,,\x01auth=Bearer {token}\x01\x01".encode(), b"\x01")
    _converse(OAuthBearerSaslServer(validate), said, lambda user: bool(user))


def signed_tokens() -> Sequence[bytes]:
    header = json.dumps({"alg": "ES256", "kid": "1"}).encode()
    return [
        _said(header, json.dumps(_claims(aud=audience, scope="a b")).encode()) for audience in ("kafka", ["x", "kafka"])
    ]


def key_set(data: bytes) -> None:
    parse_key_set(data)


def key_sets() -> Sequence[bytes]:
    rsa = json.dumps({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "n": _base64(b"\xff" * 256), "e": "AQAB"}]})
    return [_signing_key()[2].encode(), rsa.encode()]


# Kerberos


class _Context:
    """A security context that lets the input be what libkrb5 would say."""

    def __init__(self, principal: str) -> None:
        self.initiator = principal
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        if token[:1] == b"!":
            raise GssError("refused")
        self.is_complete = token[:1] != b"+"
        return token[1:2]

    def wrap(self, message: bytes) -> bytes:
        return message

    def unwrap(self, message: bytes) -> bytes:
        return message


def kerberos(data: bytes) -> None:
    """The principal, then what the client says."""
    principal, *rest = _messages(data) or [b""]
    namer = parse_principal_rules(["RULE:[2:$1@$0](.*@FUZZ)s/@.*//", "DEFAULT"], "FUZZ")
    server = GssapiSaslServer(_Context(_text(principal)), namer.name_of)
    _converse(server, _said(*rest), lambda user: bool(user))


def kerberos_conversations() -> Sequence[bytes]:
    return [_said(b"alice/host@FUZZ", b"token", b"", b"\1\0\0\0alice"), _said(b"alice@FUZZ", b"+", b"x", b"\1\0\0\0")]


# What a hostile broker says to our clients


def scram_client(data: bytes) -> None:
    _answered(ScramSaslClient(SHA_256, Password("alice", "secret"), lambda: "clientnonce"), data)


def bearer_client(data: bytes) -> None:
    _answered(OAuthBearerSaslClient(BearerToken("a.b.c")), data)


def plain_client(data: bytes) -> None:
    _answered(PlainSaslClient(Password("alice", "secret")), data)


def _answered(client: SaslClient, data: bytes) -> None:
    client.first()
    for message in _messages(data):
        if client.is_complete:
            break
        client.answer(message)


@cache
def scram_challenges() -> Sequence[bytes]:
    client, server = ScramSaslClient(SHA_256, Password("alice", "secret"), lambda: "clientnonce"), _scram_server()
    challenge = server.evaluate(client.first())
    final = server.evaluate(client.answer(challenge) or b"")
    return [_said(challenge, final), _said(challenge, b"e=other-error"), _said(b"e=x")]


def bearer_challenges() -> Sequence[bytes]:
    return [_said(b""), _said(b'{"status":"invalid_token","scope":"a"}', b"")]


_REFUSED = (SaslAuthenticationFailedError,)
_CLIENTS = (SaslProtocolError, SaslRefused, ClientError, UserError)
TARGETS = (
    Target("plain", plain, _REFUSED, plain_conversations),
    Target("scram", scram_login, _REFUSED, scram_conversations),
    Target("scram_credential", scram_credential, (BadCredentialError,), scram_credentials),
    Target("bearer", bearer, _REFUSED, bearer_conversations),
    Target("signed_token", signed_claims, _REFUSED, signed_tokens),
    Target("key_set", key_set, (BadKeySetError,), key_sets),
    Target("kerberos", kerberos, _REFUSED, kerberos_conversations),
    Target("plain_client", plain_client, _CLIENTS, lambda: [_said(b"")]),
    Target("scram_client", scram_client, _CLIENTS, scram_challenges),
    Target("bearer_client", bearer_client, _CLIENTS, bearer_challenges),
)
