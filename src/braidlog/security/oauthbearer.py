r"""OAUTHBEARER (RFC 7628, KIP-255): a token from an issuer.

client   n,,\x01auth=Bearer <token>[\x01<extension>=<value>]…\x01\x01
server   nothing: accepted      or   {"status": "invalid_token", "scope": …, "openid-configuration": …}
client                               \x01, whereupon the server refuses the login with the same text

Unsecured JSON web tokens (RFC 7515, `alg: none`) are what Kafka takes where nothing else is set up. They are not
signed: for development only. The options are those of Kafka's OAuthBearerLoginModule.

    unsecuredLoginStringClaim_<claim>="text"        unsecuredLoginNumberClaim_<claim>="1.5"
    unsecuredLoginListClaim_<claim>="|a|b"          the first sign separates
    unsecuredLoginExtension_<name>="value"          unsecuredLoginLifetimeSeconds="3600"
    unsecuredLoginPrincipalClaimName="sub"          unsecuredLoginScopeClaimName="scope"
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import SaslAuthenticationFailedError
from braidlog.security.credentials import BearerToken
from braidlog.security.sasl_client import SaslClient, SaslProtocolError, SaslRefused, State
from braidlog.security.sasl_server import SaslServer, ServerState, refused, text_of
from braidlog.security.token_validation import TokenRefusedError, TokenValidator

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
    except (ValueError, RecursionError) as problem:
        raise SaslProtocolError("the server's answer to the token is neither empty nor an error in JSON") from problem
    if not isinstance(error, dict):
        raise SaslProtocolError("the server's answer to the token is not a JSON object")
    words = [str(error.get("status") or "no status given")]
    if error.get("scope"):
        words.append(f"needed scope: {error['scope']}")
    if error.get("openid-configuration"):
        words.append(f"tokens are issued as {error['openid-configuration']} says")
    return "".join(sign if sign.isprintable() else "?" for sign in ", ".join(words)[:300])


_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x02-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class OAuthBearerSaslServer(SaslServer):
    mechanism = MECHANISM

    def __init__(self, validate: TokenValidator) -> None:
        super().__init__()
        self._validate = validate
        self._error = ""
        # What the client sent besides (KIP-342); nothing here asks for any of it.
        self.extensions: dict[str, str] = {}

    def _evaluate(self, message: bytes) -> bytes:
        if self.state is ServerState.CHALLENGED:
            # What is not the acknowledgement is no second attempt either.
            raise SaslAuthenticationFailedError(self._error) if message == _SEPARATOR.encode() else refused(MECHANISM)
        found = _FIRST.fullmatch(text_of(message, MECHANISM))
        if found is None:
            raise refused(MECHANISM)
        pairs = [pair.partition("=") for pair in found["pairs"].split("\x01") if pair]
        self.extensions = {name: value for name, _, value in pairs}
        auth = _AUTH.fullmatch(self.extensions.pop("auth", ""))
        if auth is None or auth["scheme"].lower() != "bearer":
            raise refused(MECHANISM)
        try:
            token = self._validate(auth["token"])
        except TokenRefusedError as problem:
            return self._challenge(problem)
        authorization_id = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        self.user = token.user
        if authorization_id not in ("", self.user):
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        self.expires_ms = token.expires_ms
        self._move(ServerState.COMPLETE)
        return b""

    def _challenge(self, problem: TokenRefusedError) -> bytes:
        self.reason = f"the token is not accepted: {problem}"
        said = {"status": problem.status, "scope": problem.scope}
        self._error = json.dumps({name: text for name, text in said.items() if text}, separators=(",", ":"))
        self._move(ServerState.CHALLENGED)
        return self._error.encode()


# Unsecured tokens


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
