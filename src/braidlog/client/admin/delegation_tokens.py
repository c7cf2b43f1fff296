"""Delegation tokens: credentials that a user hands to programs which run in the user's name (KIP-48)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, ControllerStrategy
from braidlog.client.arguments import Many, listed
from braidlog.client.broker_errors import check
from braidlog.core.principal import Principal
from braidlog.wire.generated.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from braidlog.wire.generated.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from braidlog.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from braidlog.wire.generated.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
# The first version that can make a token for another user.
_FOR_OTHERS: Final = 3
_BROKERS_CHOICE: Final = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    token_id: str
    # The token's password.
    hmac: bytes = field(repr=False)
    owner: Principal
    # Who asked for it; the owner, unless others may ask for it.
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    # Beyond this it cannot be renewed.
    ends_ms: int


def create_delegation_token(
    driver: AdminApiDriver,
    *,
    owner: Principal | None = None,
    renewers: Many[Principal] = (),
    max_lifetime_ms: int | None = None,
) -> DelegationToken:
    allowed = tuple(listed(renewers, "renewers"))

    async def create(node: BrokerConnection) -> DelegationToken:
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in allowed],
            max_lifetime_ms=_BROKERS_CHOICE if max_lifetime_ms is None else max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = owner
        elif node.version_for(CREATE_DELEGATION_TOKEN) >= _FOR_OTHERS:
            request.owner_principal_type = request.owner_principal_name = None
        answer = await node.call(CREATE_DELEGATION_TOKEN, request, CreateDelegationTokenResponse)
        check(answer.error_code, "delegation token")
        made_for = Principal(answer.principal_type, answer.principal_name)
        asked_by = Principal(answer.token_requester_principal_type, answer.token_requester_principal_name)
        return DelegationToken(
            answer.token_id,
            bytes(answer.hmac),
            made_for,
            asked_by if asked_by.name else made_for,
            allowed,
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    return driver.ask_one(ControllerStrategy(), create)


def describe_delegation_tokens(driver: AdminApiDriver, owners: Many[Principal] | None = None) -> list[DelegationToken]:
    wanted = None
    if owners is not None:
        wanted = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in listed(owners, "owners")
        ]
    request = DescribeDelegationTokenRequest(owners=wanted)

    async def describe(node: BrokerConnection) -> list[DelegationToken]:
        answer = await node.call(DESCRIBE_DELEGATION_TOKEN, request, DescribeDelegationTokenResponse)
        check(answer.error_code, "delegation tokens")
        found: list[DelegationToken] = []
        for each in answer.tokens:
            owner = Principal(each.principal_type, each.principal_name)
            asked_by = Principal(each.token_requester_principal_type, each.token_requester_principal_name)
            found.append(
                DelegationToken(
                    each.token_id,
                    bytes(each.hmac),
                    owner,
                    asked_by if asked_by.name else owner,
                    tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
                    each.issue_timestamp,
                    each.expiry_timestamp,
                    each.max_timestamp,
                )
            )
        return sorted(found, key=lambda token: token.token_id)

    return driver.ask_one(AnyBrokerStrategy(), describe)


def renew_delegation_token(driver: AdminApiDriver, hmac: bytes, *, period_ms: int | None = None) -> int:
    request = RenewDelegationTokenRequest(
        hmac=hmac, renew_period_ms=_BROKERS_CHOICE if period_ms is None else period_ms
    )

    async def renew(node: BrokerConnection) -> int:
        answer = await node.call(RENEW_DELEGATION_TOKEN, request, RenewDelegationTokenResponse)
        check(answer.error_code, "delegation token")
        return answer.expiry_timestamp_ms

    return driver.ask_one(ControllerStrategy(), renew)


def expire_delegation_token(driver: AdminApiDriver, hmac: bytes, *, period_ms: int | None = None) -> int:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1 if period_ms is None else period_ms)

    async def expire(node: BrokerConnection) -> int:
        answer = await node.call(EXPIRE_DELEGATION_TOKEN, request, ExpireDelegationTokenResponse)
        check(answer.error_code, "delegation token")
        return answer.expiry_timestamp_ms

    return driver.ask_one(ControllerStrategy(), expire)
