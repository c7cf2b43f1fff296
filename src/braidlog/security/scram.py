"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) without channel binding, as Kafka speaks it.

    client-first   n,,n=<user>,r=<nonce>[,<extension>=<value>]…
    server-first   r=<nonce><more>,s=<salt, base64>,i=<iterations>
    client-final   c=biws,r=<nonce><more>,p=<proof, base64>
    server-final   v=<server signature, base64>   or   e=<error>

The password never travels; the server proves with its signature that it knows the user's keys, and is not trusted
before. User name and password are UTF-8 as they are: Kafka does not apply SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable
from typing import Final, NamedTuple

from braidlog.security.credentials import Password
from braidlog.security.sasl_client import SaslClient, SaslProtocolError, SaslRefused, State


class Mechanism(NamedTuple):
    name: str
    hash_name: str
    # Fewer would make guessing the password from a recorded exchange too cheap (RFC 7677).
    min_iterations: int


SHA_256: Final = Mechanism("SCRAM-SHA-256", "sha256", 4096)
SHA_512: Final = Mechanism("SCRAM-SHA-512", "sha512", 4096)
MECHANISMS: Final = {each.name: each for each in (SHA_256, SHA_512)}

# A server that asks for more is out to keep us busy: this is about a second.
MAX_ITERATIONS: Final = 2_000_000

_GS2_HEADER: Final = "n,,"
_CHANNEL: Final = b64encode(_GS2_HEADER.encode()).decode()


# Keys, for either side


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: Mechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def server_key(mechanism: Mechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def stored_key(mechanism: Mechanism, key: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, key).digest()


def signature(mechanism: Mechanism, key: bytes, auth_message: str) -> bytes:
    return hmac.digest(key, auth_message.encode(), mechanism.hash_name)


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escaped(username: str) -> str:
    """A user name as an attribute's value."""
    return username.replace("=", "=3D").replace(",", "=2C")


class Challenge(NamedTuple):
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


def parse_challenge(text: str) -> Challenge:
    """`r=…,s=…,i=…` and whatever extensions follow; a mandatory extension (m=) is refused as the RFC asks."""
    attributes = _attributes(text)
    if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
        raise SaslProtocolError("the server's SCRAM challenge is malformed")
    (_, nonce), (_, salt), (_, iterations) = attributes[:3]
    if not iterations.isascii() or not iterations.isdigit() or len(iterations) > 9:
        raise SaslProtocolError("the server's SCRAM challenge has no number of iterations")
    return Challenge(nonce, _unbase64(salt), int(iterations))


def _attributes(text: str) -> list[tuple[str, str]]:
    found = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or len(name) != 1 or not value:
            raise SaslProtocolError("the server's SCRAM message is malformed")
        found.append((name, value))
    return found


def _unbase64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError) as problem:
        raise SaslProtocolError("the server's SCRAM message holds something that is not base64") from problem


def new_nonce() -> str:
    return secrets.token_urlsafe(24)


class ScramSaslClient(SaslClient):
    def __init__(self, mechanism: Mechanism, who: Password, nonce: Callable[[], str] = new_nonce) -> None:
        super().__init__()
        self._parameters = mechanism
        self._who = who
        self._nonce = nonce()
        extensions = "".join(f",{name}={value}" for name, value in who.extensions.items())
        self._first_bare = f"n={escaped(who.username)},r={self._nonce}{extensions}"
        self._server_signature = b""

    def named(self) -> str:
        return self._parameters.name

    def _first(self) -> bytes:
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def _answer(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
        except UnicodeDecodeError as problem:
            raise SaslProtocolError("the server's SCRAM message is no text") from problem
        if self.state is State.ASKED:
            return self._prove(text)
        self._verify(text)
        return None

    def _prove(self, server_first: str) -> bytes:
        if server_first.startswith("e="):
            raise SaslRefused(f"the server refused the exchange ({_shown(server_first[2:])})")
        challenge = parse_challenge(server_first)
        mechanism = self._parameters
        if not challenge.nonce.startswith(self._nonce) or challenge.nonce == self._nonce:
            raise SaslProtocolError("the server answered with a nonce that is not ours: it answers another exchange")
        if not mechanism.min_iterations <= challenge.iterations <= MAX_ITERATIONS:
            raise SaslProtocolError(
                f"the server asks for {challenge.iterations} iterations, {mechanism.name} has "
                f"{mechanism.min_iterations} to {MAX_ITERATIONS}; "
                f"create the user's {mechanism.name} credentials again with such a number"
            )
        salted = salted_password(mechanism, self._who.password, challenge.salt, challenge.iterations)
        without_proof = f"c={_CHANNEL},r={challenge.nonce}"
        auth_message = f"{self._first_bare},{server_first},{without_proof}"
        key = client_key(mechanism, salted)
        proof = xor(key, signature(mechanism, stored_key(mechanism, key), auth_message))
        self._server_signature = signature(mechanism, server_key(mechanism, salted), auth_message)
        self._move(State.PROVED)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str) -> None:
        name, value = _attributes(server_final)[0]
        if name == "e":
            raise SaslRefused(f"the server refused the credentials ({_shown(value)})")
        if name != "v" or not hmac.compare_digest(_unbase64(value), self._server_signature):
            raise SaslProtocolError(
                "the server could not prove that it knows the user's password: it is not the broker it claims to be"
            )
        self._move(State.COMPLETE)


def _shown(text: str) -> str:
    """A server's own word for what went wrong, short and printable."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:200])
