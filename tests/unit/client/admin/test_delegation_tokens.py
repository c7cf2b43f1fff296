"""Delegation tokens as they are put into requests."""

from __future__ import annotations

import pytest

from braidlog.client.admin import delegation_tokens
from braidlog.core.principal import Principal
from braidlog.wire.generated.create_delegation_token import CreateDelegationTokenResponse
from support.admin_fakes import asking


@pytest.mark.parametrize(("version", "owner"), [(2, ""), (3, None)])
def test_a_token_is_the_callers_unless_an_owner_is_named(version: int, owner: str | None) -> None:
    answer = CreateDelegationTokenResponse(principal_type="User", principal_name="ann", token_id="t", hmac=b"h")
    admin, node = asking(
        {delegation_tokens.CREATE_DELEGATION_TOKEN: answer}, {delegation_tokens.CREATE_DELEGATION_TOKEN: version}
    )
    token = admin.create_delegation_token(renewers=[Principal.parse("User:bob")])
    assert token.owner == token.requester == Principal("User", "ann")
    assert node.asked[0].owner_principal_name == owner
    assert "hmac" not in repr(token)
