"""Features that the brokers of a cluster agreed on: which there are, and at which level (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, ControllerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import mapped
from braidlog.client.broker_errors import broker_error, check
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.outbound.api_versions import api_versions_request
from braidlog.wire.apis import API_VERSIONS
from braidlog.wire.generated.api_versions import ApiVersionsResponse
from braidlog.wire.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

UPDATE_FEATURES: Final = 57
# The first version that tells kinds of downgrades apart, can only check, and the first without errors per feature.
_KINDS: Final = 1
_ALL_OR_NONE: Final = 2


class UpgradeType(IntEnum):
    UPGRADE = 1
    # Only if nothing is lost by it.
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Levels(NamedTuple):
    lowest: int
    highest: int


class FeatureUpdate(NamedTuple):
    """The level that a feature shall have; 0 takes it away."""

    level: int
    kind: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class Features:
    # What the cluster uses, and what the broker that answered could use.
    finalized: Mapping[str, Levels]
    supported: Mapping[str, Levels]
    # Rises with every change; None of brokers that have no features.
    epoch: int | None


def describe_features(driver: AdminApiDriver) -> Features:
    async def describe(node: BrokerConnection) -> Features:
        request = api_versions_request("admin")
        answer = await node.call(API_VERSIONS, request, ApiVersionsResponse)
        check(answer.error_code, "features")
        return Features(
            finalized={
                each.name: Levels(each.min_version_level, each.max_version_level)
                for each in sorted(answer.finalized_features, key=lambda each: each.name)
            },
            supported={
                each.name: Levels(each.min_version, each.max_version)
                for each in sorted(answer.supported_features, key=lambda each: each.name)
            },
            epoch=answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
        )

    return driver.ask_one(AnyBrokerStrategy(), describe)


def update_features(
    driver: AdminApiDriver, updates: Mapping[str, int | FeatureUpdate], *, validate_only: bool = False
) -> Results[str, None]:
    given = mapped(updates, "updates", '{"metadata.version": 21}')
    wanted = {name: FeatureUpdate(update) if isinstance(update, int) else update for name, update in given.items()}
    timeout_ms = driver.timeout_ms

    async def update(node: BrokerConnection, names: list[str]) -> dict[str, ProtocolError | None]:
        version = node.version_for(UPDATE_FEATURES)
        request = UpdateFeaturesRequest(
            timeout_ms=timeout_ms,
            feature_updates=[_update(name, wanted[name], version) for name in names],
            validate_only=validate_only,
        )
        answer = await node.call(UPDATE_FEATURES, request, UpdateFeaturesResponse)
        check(answer.error_code, "features", answer.error_message)
        if version >= _ALL_OR_NONE:
            return dict.fromkeys(names)
        return {
            each.feature: None
            if each.error_code == NONE
            else broker_error(each.error_code, f"feature {each.feature}", each.error_message)
            for each in answer.results
        }

    return driver.ask(wanted, ControllerStrategy(), update)


def _update(name: str, update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    key = FeatureUpdateKey(feature=name, max_version_level=update.level)
    if version >= _KINDS:
        key.upgrade_type = update.kind
    else:
        key.allow_downgrade = update.kind != UpgradeType.UPGRADE
    return key
