r"""OAUTHBEARER (RFC 7628, KIP-255): a token from an issuer.

client   n,,\x01auth=Bearer <token>[\x01<extension>=<value>]…\x01\x01
server   nothing: accepted      or   {"status": "invalid_token", "scope": …, "openid-configuration": …}
client                               \x01, whereupon the server ends the exchange

Unsecured JSON web tokens (RFC 7515, `alg: none`) are what Kafka takes where nothing else is set up. They are not
signed: for development only. The options are those of Kafka's OAuthBearerLoginModule.

    unsecuredLoginStringClaim_<claim>="text"        unsecuredLoginNumberClaim_<claim>="1.5"
    unsecuredLoginListClaim_<claim>="|a|b"          the first sign separates
    unsecuredLoginExtension_<name>="value"          unsecuredLoginLifetimeSeconds="3600"
    unsecuredLoginPrincipalClaimName="sub"          unsecuredLoginScopeClaimName="scope"
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

from braidlog.core.errors import UserError
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
        self.refusal = _refusal_text(challenge)
        self._move(State.REFUSED)
        return _SEPARATOR.encode()


def _refusal_text(challenge: bytes) -> str:
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


PREFIX: Final = "unsecuredLogin"
_STRING: Final = f"{PREFIX}StringClaim_"
_NUMBER: Final = f"{PREFIX}NumberClaim_"
_LIST: Final = f"{PREFIX}ListClaim_"
_EXTENSION: Final = f"{PREFIX}Extension_"
_LIFETIME: Final = f"{PREFIX}LifetimeSeconds"
_PRINCIPAL: Final = f"{PREFIX}PrincipalClaimName"
_DEFAULT_LIFETIME_S: Final = 3600


def unsecured_token(options: Mapping[str, str], now_ms: int) -> BearerToken:
    """The token that the options describe, issued now."""
    claims: dict[str, Any] = {}
    extensions: dict[str, str] = {}
    for option, value in options.items():
        if option.startswith(_STRING):
            claims[option.removeprefix(_STRING)] = value
        elif option.startswith(_NUMBER):
            claims[option.removeprefix(_NUMBER)] = _number(option, value)
        elif option.startswith(_LIST):
            claims[option.removeprefix(_LIST)] = value[1:].split(value[:1]) if value else []
        elif option.startswith(_EXTENSION):
            extensions[option.removeprefix(_EXTENSION)] = value
    principal_claim = options.get(_PRINCIPAL, "sub")
    if not isinstance(claims.get(principal_claim), str):
        raise UserError(
            f'sasl.jaas.config: an unsecured token needs {_STRING}{principal_claim}="…", the name to log in as'
        )
    lifetime_s = _number(_LIFETIME, options.get(_LIFETIME, str(_DEFAULT_LIFETIME_S)))
    issued_s = now_ms / 1000
    claims.setdefault("iat", issued_s)
    claims.setdefault("exp", issued_s + lifetime_s)
    return BearerToken(
        encode_unsecured(claims), round(float(claims["exp"]) * 1000), str(claims[principal_claim]), extensions
    )


def encode_unsecured(claims: Mapping[str, Any]) -> str:
    """header.claims. with an empty signature."""
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def claims_of(token: str) -> dict[str, Any]:
    """What a JSON web token claims, unverified; empty where it is not one."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _part(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as problem:
        raise UserError(f"sasl.jaas.config: {option} is not a number") from problem
