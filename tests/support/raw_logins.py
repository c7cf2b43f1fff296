"""Logins over a raw connection, so that a test knows which broker answers it."""

from __future__ import annotations

from typing import Any

from braidlog.security.credentials import Password
from braidlog.security.delegation_tokens import password_of
from braidlog.security.scram import MECHANISMS, ScramSaslClient
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest
from support.raw import RawConnection

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 2


def _authenticate(raw: RawConnection, message: bytes) -> Any:
    return raw.ask("SaslAuthenticate", AUTHENTICATE_VERSION, SaslAuthenticateRequest(auth_bytes=message))


def _shake_hands(raw: RawConnection, mechanism: str) -> None:
    answered: Any = raw.ask("SaslHandshake", HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=mechanism))
    assert answered.error_code == 0, answered.mechanisms


def log_in(port: int, user: str, password: str) -> RawConnection:
    """By PLAIN."""
    raw = RawConnection(port)
    _shake_hands(raw, "PLAIN")
    answered = _authenticate(raw, f"\0{user}\0{password}".encode())
    assert answered.error_code == 0, answered.error_message
    return raw


def log_in_with_token(raw: RawConnection, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256") -> Any:
    """The broker's last word: a refusal, or how long the session lasts."""
    client = ScramSaslClient(MECHANISMS[mechanism], Password(token_id, password_of(hmac), {"tokenauth": "true"}))
    _shake_hands(raw, mechanism)
    answered = _authenticate(raw, client.first())
    while answered.error_code == 0 and not client.is_complete:
        message = client.answer(bytes(answered.auth_bytes))
        if message is not None:
            answered = _authenticate(raw, message)
    return answered
