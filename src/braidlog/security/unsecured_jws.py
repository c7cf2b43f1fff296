"""Unsecured JSON web tokens (RFC 7515, `alg: none`): what Kafka takes for OAUTHBEARER where nothing else is set up.

Nobody vouches for them: for development only. The options are those of Kafka's OAuthBearerLoginModule.

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
