"""What a broker keeps of a SCRAM user: enough to check a password, not to know it (RFC 5802).

    salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>

Kafka's own text, a value of the user's node /config/users/<user> under the mechanism's name. An unknown user is given a
credential that nobody has the password of, the same each time, so that a client cannot tell it from a known one.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Final

from braidlog.core.errors import BraidlogError
from braidlog.security import scram
from braidlog.security.scram import Mechanism

# What brokers take; more would keep them and their clients busy.
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
_SALT_BYTES: Final = 24
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class BadCredentialError(BraidlogError):
    """A stored credential that cannot be read; the message does not show it."""


@dataclass(frozen=True, slots=True)
class StoredCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def credential_of(mechanism: Mechanism, salt: bytes, salted_password: bytes, iterations: int) -> StoredCredential:
    """What to store of a password that its owner has salted."""
    return StoredCredential(
        salt=salt,
        stored_key=scram.stored_key(mechanism, scram.client_key(mechanism, salted_password)),
        server_key=scram.server_key(mechanism, salted_password),
        iterations=iterations,
    )


def encode_credential(credential: StoredCredential) -> str:
    salt, stored, server = (
        b64encode(each).decode() for each in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def decode_credential(text: str) -> StoredCredential:
    """Raises BadCredentialError."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        values[name] = value
    if set(values) != set(_FIELDS) or not values["iterations"].isdecimal() or len(values["iterations"]) > 10:
        raise BadCredentialError(f"a SCRAM credential is made of {', '.join(_FIELDS)}")
    try:
        salt, stored, server = (b64decode(values[name], validate=True) for name in _FIELDS[:3])
    except ValueError:
        raise BadCredentialError("a SCRAM credential holds something that is not base64") from None
    return StoredCredential(salt, stored, server, int(values["iterations"]))


class UnknownUsers:
    """Credentials of those who have none. `secret` keeps others from computing them."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def credential(self, mechanism: Mechanism, user: str, like: StoredCredential | None) -> StoredCredential:
        """Looks like those of real users, of which `like` is one."""
        size = len(like.salt) if like is not None else _SALT_BYTES
        return StoredCredential(
            # Twice the longest digest: no tool makes a longer salt.
            salt=(self._drawn(scram.SHA_512, "salt", user) + self._drawn(scram.SHA_512, "more salt", user))[:size],
            stored_key=self._drawn(mechanism, "stored key", user),
            server_key=self._drawn(mechanism, "server key", user),
            iterations=like.iterations if like is not None else MIN_ITERATIONS,
        )

    def _drawn(self, mechanism: Mechanism, what: str, user: str) -> bytes:
        return hmac.digest(self._secret, f"{mechanism.name} {what} {user}".encode(), mechanism.hash_name)
