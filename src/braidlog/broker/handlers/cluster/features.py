"""The features that ApiVersions tells of (KIP-584): protocols whose use clients decide by more than an api's version.

Both are finalised from the first start: nothing older ever reads what this broker writes, and a client that does not
know them asks in the versions that it knows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.wire.generated.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey


class Feature(NamedTuple):
    name: str
    lowest: int
    highest: int
    finalised: int


FEATURES: Final = (
    # 1: the consumer group protocol (KIP-848).
    Feature("group.version", 0, 1, 1),
    # 2: each end of a transaction moves the epoch (KIP-890).
    Feature("transaction.version", 0, 2, 2),
)
FINALISED_EPOCH: Final = 0

# Before v4 a lowest level of 0 cannot be told: clients took it for an error, so such features are left out (KIP-1022).
_ZERO_FROM: Final = 4
_FEATURES_FROM: Final = 3


def add_features(response: ApiVersionsResponse, version: int) -> None:
    if version < _FEATURES_FROM:
        return
    response.supported_features = [
        SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
        for feature in FEATURES
        if feature.lowest > 0 or version >= _ZERO_FROM
    ]
    response.finalized_features = [
        FinalizedFeatureKey(name=feature.name, max_version_level=feature.finalised, min_version_level=feature.finalised)
        for feature in FEATURES
    ]
    response.finalized_features_epoch = FINALISED_EPOCH
