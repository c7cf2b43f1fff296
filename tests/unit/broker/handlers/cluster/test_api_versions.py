"""The features that ApiVersions tells of."""

from __future__ import annotations

import pytest

from braidlog.broker.handlers.cluster.api_versions import add_features
from braidlog.wire.generated.api_versions import ApiVersionsResponse


def reported(version: int) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    response = ApiVersionsResponse()
    add_features(response, version)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalised = {each.name: each.max_version_level for each in response.finalized_features}
    return supported, finalised, response.finalized_features_epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_have_no_features(version: int) -> None:
    assert reported(version) == ({}, {}, -1)


def test_a_range_from_0_is_left_out_where_clients_took_it_for_an_error() -> None:
    assert reported(3) == ({}, {"group.version": 1, "transaction.version": 2}, 0)


def test_all_are_told_from_version_4_on() -> None:
    supported = {"group.version": (0, 1), "transaction.version": (0, 2)}
    assert reported(4) == (supported, {"group.version": 1, "transaction.version": 2}, 0)
