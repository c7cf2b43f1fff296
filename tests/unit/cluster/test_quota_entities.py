from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cluster.quota_entities import (
    CONNECTION_CREATION_RATE,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
    decoded,
    encoded,
    entity_of,
    precedence,
    quotas_in,
)

ENTITIES = {
    "users/ann": QuotaEntity(user="ann"),
    "users/<default>": QuotaEntity(user="<default>"),
    "users/ann/clients/<default>": QuotaEntity(user="ann", client_id="<default>"),
    "clients/app": QuotaEntity(client_id="app"),
    "ips/127.0.0.1": QuotaEntity(ip="127.0.0.1"),
}


@pytest.mark.parametrize("path", ENTITIES)
def test_paths(path: str) -> None:
    assert entity_of(path) == ENTITIES[path]
    assert ENTITIES[path].path == path


@pytest.mark.parametrize("path", ["topics/users", "brokers/1", "users", "users/a/b", "users/a/b/c", "clients/a/b"])
def test_other_paths_hold_no_quotas(path: str) -> None:
    assert entity_of(path) is None


@given(st.text(min_size=1))
def test_any_name_has_a_path(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    assert decoded(encoded(name)) == name
    assert "/" not in encoded(name)
    assert encoded(name) != encoded(None)


def test_the_default_is_not_a_user_of_that_name() -> None:
    assert encoded(None) == "<default>"
    assert decoded("<default>") is None
    assert encoded("<default>") == "%3Cdefault%3E"


def test_only_quotas_count_and_only_numbers() -> None:
    overrides = {
        PRODUCER_BYTE_RATE: "1024",
        CONNECTION_CREATION_RATE: "5.5",
        "consumer_byte_rate": "many",
        "request_percentage": "NaN",
        "SCRAM-SHA-256": "salt=…",
    }
    assert quotas_in(overrides) == {PRODUCER_BYTE_RATE: 1024.0, CONNECTION_CREATION_RATE: 5.5}


def test_the_eight_levels_in_kafkas_order() -> None:
    assert [entity.path for entity in precedence("U", "C")] == [
        "users/U/clients/C",
        "users/U/clients/<default>",
        "users/U",
        "users/<default>/clients/C",
        "users/<default>/clients/<default>",
        "users/<default>",
        "clients/C",
        "clients/<default>",
    ]
