"""How long delegation tokens live, and who may do what with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braidlog.config.broker import BrokerSettings
from braidlog.controller.users import delegation_tokens as rules
from braidlog.controller.users.delegation_tokens import TokenLifetimes, token_lifetimes
from braidlog.core.principal import Principal
from braidlog.core.protocol_errors import (
    DelegationTokenExpiredError,
    DelegationTokenOwnerMismatchError,
    InvalidPrincipalTypeError,
)

ALICE, BOB, OWL, EVE = (Principal("User", name) for name in ("alice", "bob", "owl", "eve"))
LIFETIMES = TokenLifetimes(longest_ms=1000, renewal_ms=100)
# Bob asked for it.
TOKEN = rules.create("t", ALICE, BOB, [OWL], -1, 5000, LIFETIMES)


def test_the_settings_have_the_lifetimes() -> None:
    assert token_lifetimes(BrokerSettings({})) == TokenLifetimes(7 * 86_400_000, 86_400_000)


@pytest.mark.parametrize(
    ("asked_ms", "expires_ms", "ends_ms"),
    [(-1, 5100, 6000), (0, 5100, 6000), (500, 5100, 5500), (50, 5050, 5050), (5000, 5100, 6000)],
)
def test_a_new_token(asked_ms: int, expires_ms: int, ends_ms: int) -> None:
    token = rules.create("t", ALICE, ALICE, [], asked_ms, 5000, LIFETIMES)
    assert (token.issued_ms, token.expires_ms, token.ends_ms) == (5000, expires_ms, ends_ms)


def test_a_life_without_end_fits_into_a_response() -> None:
    token = rules.create("t", ALICE, ALICE, [], -1, 5000, TokenLifetimes(2**63 - 1, 2**63 - 1))
    assert token.expires_ms == token.ends_ms == 2**63 - 1


@pytest.mark.parametrize(("period_ms", "expires_ms"), [(-1, 5150), (0, 5050), (10, 5060), (10_000, 6000)])
@pytest.mark.parametrize("who", [ALICE, OWL])
def test_a_renewal(who: Principal, period_ms: int, expires_ms: int) -> None:
    renewed = rules.renew(TOKEN, who, period_ms, 5050, LIFETIMES)
    assert renewed == replace(TOKEN, expires_ms=expires_ms)


@pytest.mark.parametrize("who", [BOB, EVE, Principal("Group", "alice")])
def test_others_may_neither_renew_nor_end_it(who: Principal) -> None:
    with pytest.raises(DelegationTokenOwnerMismatchError):
        rules.renew(TOKEN, who, -1, 5050, LIFETIMES)
    with pytest.raises(DelegationTokenOwnerMismatchError):
        rules.expire(TOKEN, who, -1, 5050)


def test_a_token_that_has_expired_is_not_renewed_but_may_be_removed() -> None:
    assert not rules.is_expired(TOKEN, 5100)
    assert rules.is_expired(TOKEN, 5101)
    assert rules.is_expired(replace(TOKEN, expires_ms=9000), 6001)
    with pytest.raises(DelegationTokenExpiredError):
        rules.renew(TOKEN, ALICE, -1, 5101, LIFETIMES)
    with pytest.raises(DelegationTokenExpiredError):
        rules.expire(TOKEN, ALICE, 10, 5101)
    assert rules.expire(TOKEN, ALICE, -1, 5101) is None


@pytest.mark.parametrize(("period_ms", "expires_ms"), [(0, 5050), (10, 5060), (10_000, 6000)])
def test_an_end_at_another_time(period_ms: int, expires_ms: int) -> None:
    assert rules.expire(TOKEN, OWL, period_ms, 5050) == replace(TOKEN, expires_ms=expires_ms)


def test_whom_a_token_concerns() -> None:
    assert rules.concerns(TOKEN, None)
    assert all(rules.concerns(TOKEN, [EVE, who]) for who in (ALICE, BOB, OWL))
    assert not rules.concerns(TOKEN, [EVE])
    assert not rules.concerns(TOKEN, [])


def test_a_renewer_is_a_user() -> None:
    rules.check_renewers([ALICE, OWL])
    with pytest.raises(InvalidPrincipalTypeError, match="Group:owls"):
        rules.check_renewers([ALICE, Principal("Group", "owls")])
