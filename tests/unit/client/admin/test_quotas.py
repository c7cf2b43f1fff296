"""Quotas as they are put into requests and read from answers."""

from __future__ import annotations

import pytest

from braidlog.client.admin import quotas
from braidlog.client.admin.quotas import ANYBODY, DEFAULT, QuotaEntity, QuotaFilter
from braidlog.core.errors import UserError
from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)
from braidlog.wire.generated.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from support.admin_fakes import asking


def test_quotas_of_defaults_and_of_nobody_in_particular() -> None:
    entity = [EntityData(entity_type="user", entity_name=None), EntityData(entity_type="client-id", entity_name="app")]
    answer = DescribeClientQuotasResponse(
        entries=[EntryData(entity=entity, values=[ValueData(key="producer_byte_rate", value=5.0)])]
    )
    admin, node = asking({quotas.DESCRIBE_CLIENT_QUOTAS: answer})
    found = admin.describe_client_quotas(QuotaFilter(user=DEFAULT, client_id="app", ip=ANYBODY, strict=True))
    assert found == {QuotaEntity(user=DEFAULT, client_id="app"): {"producer_byte_rate": 5.0}}
    (request,) = node.asked
    assert request.strict
    assert [(each.entity_type, each.match_type, each.match) for each in request.components] == [
        ("user", 1, None),
        ("client-id", 0, "app"),
        ("ip", 2, None),
    ]


def test_quotas_are_set_and_taken_away() -> None:
    answer = AlterClientQuotasResponse(
        entries=[ResponseEntryData(entity=[ResponseEntityData(entity_type="user", entity_name=None)])]
    )
    admin, node = asking({quotas.ALTER_CLIENT_QUOTAS: answer})
    everybody = QuotaEntity(user=DEFAULT)
    assert admin.alter_client_quotas({everybody: {"a": 1.5, "b": None}}) == {everybody: None}
    (entry,) = node.asked[0].entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", None)]
    assert [(each.key, each.value, each.remove) for each in entry.ops] == [("a", 1.5, False), ("b", 0.0, True)]
    assert str(QuotaEntity(user=DEFAULT, client_id="app")) == "user (default), client-id app"
    with pytest.raises(UserError, match="nothing to change"):
        admin.alter_client_quotas({everybody: {}})
