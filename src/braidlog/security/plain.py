"""PLAIN (RFC 4616): the password as it is, so only over TLS.

message = [authzid] NUL authcid NUL password        UTF-8; Kafka wants no authzid, or the same as authcid

The users of a broker are in its settings: `user_NAME="password"` in the JAAS text of the listener.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security.credentials import Password
from braidlog.security.sasl_client import SaslClient, SaslProtocolError, State
from braidlog.security.sasl_server import SaslServer, ServerState, text_of

MECHANISM = "PLAIN"
_USER: Final = "user_"


class PlainSaslClient(SaslClient):
    mechanism = MECHANISM

    def __init__(self, who: Password) -> None:
        super().__init__()
        if "\0" in who.username or "\0" in who.password:
            raise UserError("a SASL user name or password cannot hold the character NUL")
        self._who = who

    def _first(self) -> bytes:
        return f"\0{self._who.username}\0{self._who.password}".encode()

    def _answer(self, challenge: bytes) -> None:
        if challenge:
            raise SaslProtocolError("the server asked for more than PLAIN has")
        self._move(State.COMPLETE)


class PlainUsers:
    """Who may log in with which password; what is kept is a digest, compared in constant time."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {user: _digest(password) for user, password in passwords.items()}
        # What an unknown user's password is compared with, in the same time.
        self._nobody = bytes(hashlib.sha256().digest_size)

    def __len__(self) -> int:
        return len(self._digests)

    def accepts(self, user: str, password: str) -> bool:
        expected = self._digests.get(user)
        same = hmac.compare_digest(_digest(password), self._nobody if expected is None else expected)
        return same and expected is not None

    def __repr__(self) -> str:
        return f"PlainUsers({', '.join(self._digests)})"


def plain_users(options: Mapping[str, str]) -> PlainUsers:
    """The users in the options of a PlainLoginModule; the others are the broker's own name and password."""
    return PlainUsers({key.removeprefix(_USER): value for key, value in options.items() if key.startswith(_USER)})


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


class PlainSaslServer(SaslServer):
    mechanism = MECHANISM

    def __init__(self, users: PlainUsers) -> None:
        super().__init__()
        self._users = users

    def _evaluate(self, message: bytes) -> bytes:
        tokens = text_of(message, MECHANISM).split("\0")
        if len(tokens) != 3:
            raise SaslAuthenticationFailedError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(tokens), 4)}"
            )
        authorization_id, self.user, password = tokens
        if not self.user:
            raise SaslAuthenticationFailedError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationFailedError("Authentication failed: password not specified")
        if not self._users.accepts(self.user, password):
            raise SaslAuthenticationFailedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", self.user):
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._move(ServerState.COMPLETE)
        return b""
