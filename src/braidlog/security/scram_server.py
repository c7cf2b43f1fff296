"""The broker's side of SCRAM-SHA-256 and SCRAM-SHA-512; `scram` has the messages.

The password's hash is the client's work: here are a few digests, as many for an unknown user as for a known one.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security import scram
from braidlog.security.delegation_tokens import TokenLogin
from braidlog.security.sasl_server import SaslServer, ServerState, refused, text_of
from braidlog.security.scram import Mechanism
from braidlog.security.scram_credentials import StoredCredential

# Whether the user exists, and its credential, or one that nobody knows the password of.
CredentialOf = Callable[[str], tuple[bool, StoredCredential]]
# The same of a delegation token, by its id.
TokenOf = Callable[[str], tuple[TokenLogin | None, StoredCredential]]

_FIRST: Final = re.compile(
    r"(?P<header>n,(?:a=(?P<authzid>[^,]+))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>[^,]+)(?:,[A-Za-z]+=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPE: Final = re.compile(r"=(?!2C|3D)")


class ScramSaslServer(SaslServer):
    """A client that says tokenauth=true logs in with a delegation token: its id in place of a user's name."""

    def __init__(
        self,
        mechanism: Mechanism,
        credential_of: CredentialOf,
        nonce: Callable[[], str] = scram.new_nonce,
        token_of: TokenOf | None = None,
    ) -> None:
        super().__init__()
        self._parameters = mechanism
        self._credential_of = credential_of
        self._token_of = token_of
        self._server_nonce = nonce()
        self._header = ""
        self._nonce = ""
        # The messages so far, which both sides sign.
        self._conversation = ""
        self._exists = False
        self._credential: StoredCredential | None = None
        self._token: TokenLogin | None = None
        # What the client asked for besides, such as tokenauth=true.
        self.extensions: dict[str, str] = {}

    def named(self) -> str:
        return self._parameters.name

    def _evaluate(self, message: bytes) -> bytes:
        text = text_of(message, self.named())
        return self._challenge(text) if self.state is ServerState.START else self._verify(text)

    def _challenge(self, first: str) -> bytes:
        found = _FIRST.fullmatch(first)
        if found is None or _ESCAPE.search(found["user"]):
            raise refused(self.named())
        self.user = _unescaped(found["user"])
        if found["authzid"] is not None and _unescaped(found["authzid"]) != self.user:
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        for pair in filter(None, found["extensions"].split(",")):
            name, _, value = pair.partition("=")
            self.extensions[name] = value
        self._exists, self._credential = self._found()
        self._header = found["header"]
        self._nonce = found["nonce"] + self._server_nonce
        salt = b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._conversation = f"{found['bare']},{challenge}"
        self._move(ServerState.CHALLENGED)
        return challenge.encode()

    def _found(self) -> tuple[bool, StoredCredential]:
        if self.extensions.get("tokenauth", "").lower() != "true":
            return self._credential_of(self.user)
        if self._token_of is None:
            # No broker of this cluster has tokens; a user's name is no token.
            return False, self._credential_of(self.user)[1]
        self._token, credential = self._token_of(self.user)
        return self._token is not None, credential

    def _verify(self, final: str) -> bytes:
        found = _FINAL.fullmatch(final)
        credential = self._credential
        assert credential is not None
        # librdkafka 2.0 puts its own nonce before it once more. That is signed with the rest, and Kafka takes it, too.
        if found is None or not found["nonce"].endswith(self._nonce):
            raise refused(self.named())
        proof, channel = _bytes(found["proof"]), _bytes(found["channel"])
        mechanism = self._parameters
        signed = f"{self._conversation},{found['without_proof']}"
        expected = scram.signature(mechanism, credential.stored_key, signed)
        if proof is None or len(proof) != len(expected) or channel != self._header.encode():
            raise refused(self.named())
        # Who has the password knows the key whose digest is stored.
        key = scram.xor(proof, expected)
        same = hmac.compare_digest(scram.stored_key(mechanism, key), credential.stored_key)
        ours = scram.signature(mechanism, credential.server_key, signed)
        if not (same and self._exists):
            raise refused(self.named())
        self._move(ServerState.COMPLETE)
        if self._token is not None:
            self.user, self.expires_ms = self._token
            self.is_by_token = True
        return f"v={b64encode(ours).decode()}".encode()


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _bytes(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None
