"""Whether a bearer token lets its holder in, and as whom.

    signed      header.claims.signature, by a key that the issuer publishes (`json_web_keys`); exp and iat are there,
                aud and iss are those expected, sub is the user
    unsecured   header.claims.  with `alg: none`: whoever writes one is who he says, for development alone

Their errors are for the broker's log: a client learns the status alone. None of them quotes a token.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from braidlog.core.errors import UserError
from braidlog.security.json_web_keys import ALGORITHMS, JsonWebKeySet, from_base64url, is_signed_by

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
# The last second of the year 9999: later ones are no dates.
_LATEST_S: Final = 253_402_300_799
_LONGEST_NAME: Final = 100


class TokenRefusedError(Exception):
    """`status` and `scope` are what the client is told, the text is why."""

    def __init__(self, why: str, status: str = INVALID_TOKEN, scope: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.scope = scope


class ValidToken(NamedTuple):
    user: str
    expires_ms: int


TokenValidator = Callable[[str], ValidToken]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What is asked of a signed token's claims."""

    # A token names one of these as its audience; any audience where there are none.
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    sub_claim: str = "sub"
    clock_skew_s: int = 30


class SignedTokenValidator:
    def __init__(
        self,
        rules: TokenRules,
        keys: Callable[[], JsonWebKeySet],
        now_ms: Callable[[], int],
        on_unknown_key: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_unknown_key` is called where none of the keys fits: the issuer may have a new one since."""
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms
        self._on_unknown_key = on_unknown_key

    def __call__(self, token: str) -> ValidToken:
        header, claims_part, signature = _parts(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefusedError(f"it is signed with none of {', '.join(ALGORITHMS)}")
        if kid is not None and not isinstance(kid, str):
            raise TokenRefusedError("its kid is not text")
        if "crit" in header:
            raise TokenRefusedError("its header asks for extensions that are not there (crit)")
        self._verify(kid, algorithm, token.rpartition(".")[0].encode(), _bytes(signature))
        return self._user(_object(claims_part))

    def _verify(self, kid: str | None, algorithm: str, signed: bytes, signature: bytes) -> None:
        keys = self._keys()
        candidates = keys.candidates(kid, algorithm)
        if not candidates:
            self._on_unknown_key()
            named = "" if kid is None else f" {kid[:_LONGEST_NAME]!r}"
            raise TokenRefusedError(f"there is no key{named} for {algorithm} among the {len(keys)} of the issuer")
        if not any(is_signed_by(key, algorithm, signed, signature) for key in candidates):
            raise TokenRefusedError("its signature is wrong")

    def _user(self, claims: Mapping[str, Any]) -> ValidToken:
        rules, now_ms = self._rules, self._now_ms()
        expires_ms = _check_times(claims, now_ms, rules.clock_skew_s * 1000, needs_iat=True)
        not_before_ms = _date_ms(claims, "nbf")
        if not_before_ms is not None and not_before_ms > now_ms + rules.clock_skew_s * 1000:
            raise TokenRefusedError("it is not valid yet (nbf)")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise TokenRefusedError("its issuer is not the expected one (iss)")
        if rules.audience:
            audience = claims.get("aud")
            named = audience if isinstance(audience, list) else [audience]
            if not any(isinstance(each, str) and each in rules.audience for each in named):
                raise TokenRefusedError("its audience is none of those expected (aud)")
        _scopes(claims, rules.scope_claim)
        return ValidToken(_name(claims, rules.sub_claim), expires_ms)


# Unsecured


UNSECURED_PREFIX: Final = "unsecuredValidator"
_PRINCIPAL: Final = f"{UNSECURED_PREFIX}PrincipalClaimName"
_SCOPE: Final = f"{UNSECURED_PREFIX}ScopeClaimName"
_REQUIRED_SCOPE: Final = f"{UNSECURED_PREFIX}RequiredScope"
_CLOCK_SKEW_MS: Final = f"{UNSECURED_PREFIX}AllowableClockSkewMs"


class UnsecuredTokenValidator:
    """With the options of Kafka's OAuthBearerLoginModule in the JAAS text of the listener."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        unknown = [
            name
            for name in options
            if name.startswith(UNSECURED_PREFIX) and name not in (_PRINCIPAL, _SCOPE, _REQUIRED_SCOPE, _CLOCK_SKEW_MS)
        ]
        if unknown:
            raise UserError(f"sasl.jaas.config: there is no option {unknown[0]}")
        self._now_ms = now_ms
        self._sub_claim = options.get(_PRINCIPAL, "sub")
        self._scope_claim = options.get(_SCOPE, "scope")
        self._required = options.get(_REQUIRED_SCOPE, "").split()
        skew = options.get(_CLOCK_SKEW_MS, "0")
        if not skew.isascii() or not skew.isdigit() or len(skew) > 18:
            raise UserError(f"sasl.jaas.config: {_CLOCK_SKEW_MS} is not a number of milliseconds, 0 or more")
        self._skew_ms = int(skew)

    def __call__(self, token: str) -> ValidToken:
        header, claims_part, signature = _parts(token)
        if header.get("alg") != "none" or signature:
            raise TokenRefusedError("it is signed, and this listener takes unsecured tokens alone")
        claims = _object(claims_part)
        expires_ms = _check_times(claims, self._now_ms(), self._skew_ms, needs_iat=False)
        issued_ms = _date_ms(claims, "iat")
        if issued_ms is not None and issued_ms > self._now_ms() + self._skew_ms:
            raise TokenRefusedError("it was issued in the future (iat)")
        user = _name(claims, self._sub_claim)
        scopes = _scopes(claims, self._scope_claim)
        if not scopes.issuperset(self._required):
            raise TokenRefusedError(
                "it lacks a scope that is required", INSUFFICIENT_SCOPE, scope=" ".join(self._required)
            )
        return ValidToken(user, expires_ms)


# What both read


def _parts(token: str) -> tuple[dict[str, Any], str, str]:
    """The header, and the other two as they are: claims are not read before the signature is verified."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefusedError("it is no JSON web token of three parts")
    return _object(parts[0]), parts[1], parts[2]


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(part), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenRefusedError("a part of it is not JSON") from None
    if not isinstance(found, dict):
        raise TokenRefusedError("a part of it is not a JSON object")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _bytes(part: str) -> bytes:
    try:
        return from_base64url(part)
    except ValueError:
        raise TokenRefusedError("a part of it is not base64url") from None


def _check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int, *, needs_iat: bool) -> int:
    """When the token expires."""
    expires_ms, issued_ms = _date_ms(claims, "exp"), _date_ms(claims, "iat")
    if expires_ms is None:
        raise TokenRefusedError("it never expires (exp is missing)")
    if issued_ms is None and needs_iat:
        raise TokenRefusedError("it does not say when it was issued (iat is missing)")
    if now_ms - skew_ms >= expires_ms:
        raise TokenRefusedError(f"it expired {(now_ms - expires_ms) / 1000:.0f} s ago")
    if issued_ms is not None and issued_ms >= expires_ms:
        raise TokenRefusedError("it expires before it was issued (exp, iat)")
    return expires_ms


def _date_ms(claims: Mapping[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_S:
        raise TokenRefusedError(f"its {claim} is not a time in seconds since 1970")
    return math.floor(value * 1000)


def _name(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value.strip():
        raise TokenRefusedError(f"it names no user (the claim {claim})")
    try:
        # JSON can name half of a surrogate pair, which could not be sent or written.
        value.encode()
    except UnicodeEncodeError:
        raise TokenRefusedError(f"its user is not text (the claim {claim})") from None
    return value


def _scopes(claims: Mapping[str, Any], claim: str) -> set[str]:
    value = claims.get(claim)
    if value is None:
        return set()
    if isinstance(value, str):
        return set(value.split())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return set(value)
    raise TokenRefusedError(f"its scopes are neither text nor a list of texts (the claim {claim})")
