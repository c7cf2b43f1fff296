"""Which quota holds for a client (KIP-55)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.broker.quotas.quota_table import AppliedQuota, QuotaTable
from braidlog.cluster.quota_entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity, precedence

LEVELS = list(precedence("U", "C"))
# Who is counted together at each level.
TAGS = [("U", "C"), ("U", "C"), ("U", ""), ("U", "C"), ("U", "C"), ("U", ""), ("", "C"), ("", "C")]


@given(st.sets(st.integers(0, 7)))
def test_the_most_specific_one_decides(which: set[int]) -> None:
    table = QuotaTable()
    for level in which:
        table.set(LEVELS[level], {PRODUCER_BYTE_RATE: float(level)})
    found = table.find(PRODUCER_BYTE_RATE, "U", "C")
    if not which:
        assert found is None
    else:
        first = min(which)
        assert found == AppliedQuota(PRODUCER_BYTE_RATE, *TAGS[first], float(first))
    assert table.find(CONSUMER_BYTE_RATE, "U", "C") is None


def test_each_kind_of_quota_is_looked_for_by_itself() -> None:
    table = QuotaTable()
    table.set(QuotaEntity(user="U"), {PRODUCER_BYTE_RATE: 1.0})
    table.set(QuotaEntity(client_id="<default>"), {PRODUCER_BYTE_RATE: 2.0, CONSUMER_BYTE_RATE: 3.0})
    assert table.find(PRODUCER_BYTE_RATE, "U", "C") == AppliedQuota(PRODUCER_BYTE_RATE, "U", "", 1.0)
    assert table.find(CONSUMER_BYTE_RATE, "U", "C") == AppliedQuota(CONSUMER_BYTE_RATE, "", "C", 3.0)
    assert table.find(PRODUCER_BYTE_RATE, "V", "C") == AppliedQuota(PRODUCER_BYTE_RATE, "", "C", 2.0)


def test_names_are_looked_for_as_paths_have_them() -> None:
    table = QuotaTable()
    table.set(QuotaEntity(user="CN%3Dann%2COU%3Dx"), {PRODUCER_BYTE_RATE: 1.0})
    assert table.find(PRODUCER_BYTE_RATE, "CN=ann,OU=x", "") is not None
    assert table.find(PRODUCER_BYTE_RATE, "CN%3Dann%2COU%3Dx", "") is None
    table.set(QuotaEntity(user="<default>"), {})
    assert table.find(PRODUCER_BYTE_RATE, "<default>", "") is None


def test_changes_are_told_from_repetitions() -> None:
    table = QuotaTable()
    entity = QuotaEntity(ip="10.0.0.1")
    assert not table.set(entity, {})
    assert table.set(entity, {"connection_creation_rate": 1.0})
    assert not table.set(entity, {"connection_creation_rate": 1.0})
    assert list(table) == [(entity, {"connection_creation_rate": 1.0})]
    assert table.set(entity, {})
    assert not table
