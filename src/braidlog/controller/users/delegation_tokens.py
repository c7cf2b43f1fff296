"""Decides about delegation tokens: how long they live, who may renew, end and see them (KIP-48, KIP-373).

    issued ──► expires ──► ends      each renewal moves `expires`, never beyond `ends`

Owner and renewers renew and end a token; who asked for it for somebody else sees it, but may not do that. Without an
authorizer everybody sees every token, and may ask for one in another's name, as in Kafka: nobody gains by it what they
were not allowed anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from braidlog.cluster.token_records import TokenInformation
from braidlog.config.broker import BrokerSettings
from braidlog.core.principal import USER, Principal
from braidlog.core.protocol_errors import (
    DelegationTokenExpiredError,
    DelegationTokenOwnerMismatchError,
    InvalidPrincipalTypeError,
)

# A time further away does not fit into a response.
_LAST_MS: Final = 2**63 - 1


class TokenLifetimes(NamedTuple):
    # Age beyond which a token cannot be renewed.
    longest_ms: int
    # What a token has until it must be renewed, where its renewal does not ask for another time.
    renewal_ms: int


def token_lifetimes(settings: BrokerSettings) -> TokenLifetimes:
    return TokenLifetimes(
        settings.get_int("delegation.token.max.lifetime.ms"), settings.get_int("delegation.token.expiry.time.ms")
    )


def check_renewers(renewers: Sequence[Principal]) -> None:
    for renewer in renewers:
        if renewer.type != USER:
            raise InvalidPrincipalTypeError(f"{renewer} cannot renew a token, only a {USER} can")


def create(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    max_lifetime_ms: int,
    now_ms: int,
    lifetimes: TokenLifetimes,
) -> TokenInformation:
    """A life of 0 or less asks for the longest."""
    longest = lifetimes.longest_ms
    ends = min(now_ms + (min(max_lifetime_ms, longest) if max_lifetime_ms > 0 else longest), _LAST_MS)
    expires = min(ends, now_ms + lifetimes.renewal_ms)
    return TokenInformation(token_id, owner, requester, tuple(renewers), now_ms, expires, ends)


def renew(
    token: TokenInformation, principal: Principal, period_ms: int, now_ms: int, lifetimes: TokenLifetimes
) -> TokenInformation:
    """A negative period asks for the usual one."""
    _check_may_change(token, principal)
    _check_lives(token, now_ms)
    period = period_ms if period_ms >= 0 else lifetimes.renewal_ms
    return replace(token, expires_ms=min(token.ends_ms, now_ms + period))


def expire(token: TokenInformation, principal: Principal, period_ms: int, now_ms: int) -> TokenInformation | None:
    """The token as it is to be; none where it ends at once, as a negative period asks for."""
    _check_may_change(token, principal)
    if period_ms < 0:
        return None
    _check_lives(token, now_ms)
    return replace(token, expires_ms=min(token.ends_ms, now_ms + period_ms))


def is_expired(token: TokenInformation, now_ms: int) -> bool:
    return min(token.expires_ms, token.ends_ms) < now_ms


def concerns(token: TokenInformation, owners: Sequence[Principal] | None) -> bool:
    """Whether one of these has to do with the token; without owners, all are asked for."""
    return owners is None or any(owner in (token.owner, token.requester) or owner in token.renewers for owner in owners)


def _check_may_change(token: TokenInformation, principal: Principal) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise DelegationTokenOwnerMismatchError(f"{principal} neither owns the token nor may renew it")


def _check_lives(token: TokenInformation, now_ms: int) -> None:
    if is_expired(token, now_ms):
        raise DelegationTokenExpiredError("the token has expired; create a new one")
