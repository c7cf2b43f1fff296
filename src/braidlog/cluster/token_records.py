"""Delegation tokens in the store, as Kafka writes them.

    /delegation_token/tokens/<token id>                         {"version":3,"owner":"User%3Aalice",…}
    /delegation_token/token_changes/token_change_0000000007     <token id>

What a token is worth, its HMAC, is not stored: whoever has the secret of the cluster computes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from braidlog.cluster import paths
from braidlog.cluster.image import desanitized, sanitized
from braidlog.cluster.records import BadRecordError, number, read_json, text, write_json
from braidlog.cluster.store import Create
from braidlog.core.principal import Principal

# Version 3 has the requester; before, who asked for a token was its owner.
_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """Times are milliseconds since 1970; issued <= expires <= ends."""

    token_id: str
    owner: Principal
    # Who asked for it.
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    # Beyond this it cannot be renewed.
    ends_ms: int


def encode_token(token: TokenInformation) -> bytes:
    return write_json(
        {
            "version": _VERSION,
            "owner": sanitized(str(token.owner)),
            "tokenRequester": sanitized(str(token.requester)),
            "renewers": [sanitized(str(renewer)) for renewer in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.ends_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(path: str, data: bytes) -> TokenInformation:
    content = read_json(path, data)
    version = number(path, content, "version")
    if not 1 <= version <= _VERSION:
        raise BadRecordError(path, f"version {version} of a delegation token is not known")
    owner = _principal(path, text(path, content, "owner"))
    renewers = content.get("renewers")
    if not isinstance(renewers, list):
        raise BadRecordError(path, f"renewers is {renewers!r}, not a list")
    return TokenInformation(
        token_id=text(path, content, "tokenId"),
        owner=owner,
        requester=_principal(path, text(path, content, "tokenRequester")) if version >= 3 else owner,
        renewers=tuple(_principal(path, each) for each in renewers),
        issued_ms=number(path, content, "issueTimestamp"),
        expires_ms=number(path, content, "expiryTimestamp"),
        ends_ms=number(path, content, "maxTimestamp"),
    )


def _principal(path: str, value: Any) -> Principal:
    """Kafka takes an empty name for one, too."""
    kind, colon, name = desanitized(str(value)).partition(":")
    if not colon:
        raise BadRecordError(path, f"{value!r} is no principal such as User%3Aalice")
    return Principal(kind, name)


def token_change(token_id: str) -> Create:
    """Has every broker read the token again."""
    return Create(paths.TOKEN_CHANGE, token_id.encode(), sequential=True)
