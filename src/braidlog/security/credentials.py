"""Who we say we are: a name with a password, or a token from an issuer; neither shows itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from braidlog.core.errors import UserError

# RFC 7628, as KIP-342 narrows it.
_EXTENSION_NAME: Final = r"[A-Za-z]+"
_EXTENSION_VALUE: Final = r"[\x21-\x7E \t\r\n]+"
# RFC 6750: b64token.
_TOKEN: Final = r"[A-Za-z0-9\-._~+/]+=*"


@dataclass(frozen=True, slots=True)
class Password:
    """A user and a password; `extensions` go along with SCRAM (`tokenauth=true` for a delegation token)."""

    username: str
    password: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.username:
            raise UserError("the SASL user name is empty; set sasl.username, or username in sasl.jaas.config")
        if not self.password:
            raise UserError("the SASL password is empty; set sasl.password, or password in sasl.jaas.config")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token as its issuer wrote it; `expires_ms` (since 1970) where that is known."""

    value: str = field(repr=False)
    expires_ms: int | None = None
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(_TOKEN, self.value):
            raise UserError(
                "the OAUTHBEARER token has characters that no bearer token has (letters, digits and -._~+/= only); "
                "see what the token provider returns"
            )
        for name, value in self.extensions.items():
            if name == "auth" or not re.fullmatch(_EXTENSION_NAME, name):
                raise UserError(f"SASL extension {name!r}: a name has letters only, and is not auth")
            if not re.fullmatch(_EXTENSION_VALUE, value):
                raise UserError(f"the SASL extension {name} has a value with characters that cannot be sent")
