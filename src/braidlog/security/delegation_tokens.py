"""What a delegation token is worth: the HMAC of its id, by a secret that all brokers of a cluster share (KIP-48).

    password of a token = base64(HMAC-SHA-512(secret, token id)), for a SCRAM login with the extension tokenauth=true

So tokens need not be stored with what they are worth, and every broker that knows of one can check it.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from typing import Final, NamedTuple

from braidlog.security import scram
from braidlog.security.scram import Mechanism
from braidlog.security.scram_credentials import MIN_ITERATIONS, StoredCredential, credential_of

# As many as credentials of unknown users have.
_SALT_BYTES: Final = 24


class TokenSecret:
    """The secret of a cluster's tokens, which does not show itself."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def hmac(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def credential(self, mechanism: Mechanism, token_id: str) -> StoredCredential:
        """What checks a login with the token; it takes some milliseconds to make."""
        salt = secrets.token_bytes(_SALT_BYTES)
        password = password_of(self.hmac(token_id))
        salted = scram.salted_password(mechanism, password, salt, MIN_ITERATIONS)
        return credential_of(mechanism, salt, salted, MIN_ITERATIONS)


class TokenLogin(NamedTuple):
    """Who a token speaks for, and until when, in milliseconds since 1970."""

    owner: str
    expires_ms: int


def password_of(token_hmac: bytes) -> str:
    return b64encode(token_hmac).decode()
