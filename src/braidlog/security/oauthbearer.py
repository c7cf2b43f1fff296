r"""OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else issued.

client   n,,\x01auth=Bearer <token>[\x01<extension>=<value>]…\x01\x01
server   nothing: accepted      or   {"status": "invalid_token", "scope": …, "openid-configuration": …}
client                               \x01, whereupon the server ends the exchange
"""

from __future__ import annotations

import json
from typing import Final

from braidlog.security.credentials import BearerToken
from braidlog.security.sasl_client import SaslClient, SaslProtocolError, SaslRefused, State

MECHANISM: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"


class OAuthBearerSaslClient(SaslClient):
    mechanism = MECHANISM

    def __init__(self, token: BearerToken) -> None:
        super().__init__()
        self._token = token

    def _first(self) -> bytes:
        extensions = "".join(f"{name}={value}{_SEPARATOR}" for name, value in self._token.extensions.items())
        return f"n,,{_SEPARATOR}auth=Bearer {self._token.value}{_SEPARATOR}{extensions}{_SEPARATOR}".encode()

    def _answer(self, challenge: bytes) -> bytes | None:
        if self.state is State.REFUSED:
            raise SaslRefused(f"the server does not accept the token ({self.refusal})")
        if not challenge:
            self._move(State.COMPLETE)
            return None
        self.refusal = _told(challenge)
        self._move(State.REFUSED)
        return _SEPARATOR.encode()


def _told(challenge: bytes) -> str:
    """Status and scope of the error, as a person reads it."""
    try:
        error = json.loads(challenge)
    except ValueError as problem:
        raise SaslProtocolError("the server's answer to the token is neither empty nor an error in JSON") from problem
    if not isinstance(error, dict):
        raise SaslProtocolError("the server's answer to the token is not a JSON object")
    words = [str(error.get("status") or "no status given")]
    if error.get("scope"):
        words.append(f"needed scope: {error['scope']}")
    if error.get("openid-configuration"):
        words.append(f"tokens are issued as {error['openid-configuration']} says")
    return "".join(sign if sign.isprintable() else "?" for sign in ", ".join(words)[:300])
