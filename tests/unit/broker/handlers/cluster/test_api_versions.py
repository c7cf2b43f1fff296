"""The features that ApiVersions tells of, and the apis that depend on them."""

from __future__ import annotations

import pytest

from braidlog.broker.handlers.cluster.api_versions import add_features
from braidlog.cluster.features import GROUP_VERSION, NEWEST
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from support.asked_broker import AskedBroker, on_broker


def reported(version: int) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    response = ApiVersionsResponse()
    add_features(response, version, NEWEST, 7)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalised = {each.name: each.max_version_level for each in response.finalized_features}
    return supported, finalised, response.finalized_features_epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_have_no_features(version: int) -> None:
    assert reported(version) == ({}, {}, -1)


def test_a_range_from_0_is_left_out_where_clients_took_it_for_an_error() -> None:
    assert reported(3) == ({}, {"group.version": 1, "transaction.version": 2}, 7)


def test_all_are_told_from_version_4_on() -> None:
    supported = {"group.version": (0, 1), "transaction.version": (0, 2)}
    assert reported(4) == (supported, {"group.version": 1, "transaction.version": 2}, 7)


@on_broker
async def test_the_newer_group_protocol_is_advertised_only_where_it_is_finalised(broker: AskedBroker) -> None:
    async def advertised() -> set[int]:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        return {each.api_key for each in (await broker.ask(request, 3)).api_keys}

    newer = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
    with_it = await advertised()
    assert newer <= with_it
    features = broker.parts.features
    features.levels = {name: level for name, level in NEWEST.items() if name != GROUP_VERSION}
    assert await advertised() == with_it - newer
