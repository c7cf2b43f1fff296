"""Features that a cluster uses, and could use."""

from __future__ import annotations

import pytest

from braidlog.client.admin import features
from braidlog.client.admin.features import FeatureUpdate, Levels, UpgradeType
from braidlog.core.protocol_errors import (
    InvalidUpdateVersionError,
)
from braidlog.wire.apis import API_VERSIONS
from braidlog.wire.generated.api_versions import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from braidlog.wire.generated.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from support.admin_fakes import asking


def test_features_that_are_used_and_could_be() -> None:
    answer = ApiVersionsResponse(
        supported_features=[SupportedFeatureKey(name="f", min_version=0, max_version=3)],
        finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
        finalized_features_epoch=7,
    )
    admin, _ = asking({API_VERSIONS: answer})
    found = admin.describe_features()
    assert (found.finalized, found.supported, found.epoch) == ({"f": Levels(1, 2)}, {"f": Levels(0, 3)}, 7)
    bare, _ = asking({API_VERSIONS: ApiVersionsResponse()})
    assert bare.describe_features().epoch is None


@pytest.mark.parametrize(("version", "expected"), [(0, (True, 1)), (1, (False, 3)), (2, (False, 3))])
def test_levels_are_changed_in_every_version(version: int, expected: tuple[bool, int]) -> None:
    # From version 2 on it is all or none, and nothing is said of each.
    results = [UpdatableFeatureResult(feature="f"), UpdatableFeatureResult(feature="g", error_code=95)]
    answer = UpdateFeaturesResponse(results=results if version < 2 else [])
    admin, node = asking({features.UPDATE_FEATURES: answer}, {features.UPDATE_FEATURES: version})
    changed = admin.update_features({"f": FeatureUpdate(0, UpgradeType.UNSAFE_DOWNGRADE), "g": 2})
    assert changed["f"] is None
    if version < 2:
        assert isinstance(changed.errors["g"], InvalidUpdateVersionError)
    first, second = node.asked[0].feature_updates
    assert (first.allow_downgrade, first.upgrade_type) == expected
    assert (second.max_version_level, second.allow_downgrade) == (2, False)
