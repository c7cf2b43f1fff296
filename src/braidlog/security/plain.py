"""PLAIN (RFC 4616): the password as it is, so only over TLS.

message = [authzid] NUL authcid NUL password        UTF-8; Kafka wants no authzid
"""

from __future__ import annotations

from braidlog.core.errors import UserError
from braidlog.security.credentials import Password
from braidlog.security.sasl_client import SaslClient, SaslProtocolError, State

MECHANISM = "PLAIN"


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
