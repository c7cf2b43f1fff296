"""Decides what UpdateFeatures (KIP-584) changes in `/feature`; its errors are those of Kafka's KRaft controller.

upgrade      at once, where every broker is ours
downgrade    in two steps: `braidlog.downgrade` first, under which brokers write anew what the features left behind,
             while Kafka is still kept out; then without it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from braidlog.cluster.features import (
    ABORTS_TRANSACTIONS,
    DOWNGRADE,
    MARKER,
    SUPPORTED,
    WAITS_FOR_TRANSACTIONS,
    is_ours,
)
from braidlog.cluster.image import BrokerInfo
from braidlog.core.protocol_errors import InvalidRequestError, InvalidUpdateVersionError, ProtocolError
from braidlog.core.types import BrokerId


class UpgradeType(IntEnum):
    """The numbers are those of the request."""

    UPGRADE = 1
    # Only where nothing is lost by it.
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    # 0 takes the feature away.
    level: int
    # An UpgradeType, or whatever number came.
    kind: int = UpgradeType.UPGRADE


class FeatureDecision(NamedTuple):
    # By feature, in the order asked; None where it is fine.
    errors: Mapping[str, ProtocolError | None]
    # What is to be finalised; of the updates without errors alone.
    levels: Mapping[str, int]
    # A level goes down, or went down and what it left behind may still be there.
    is_downgrade: bool = False
    is_safe: bool = True

    @property
    def first_error(self) -> ProtocolError | None:
        return next((error for error in self.errors.values() if error is not None), None)

    def under_way(self) -> dict[str, int]:
        """The levels for as long as a downgrade takes."""
        return {**self.levels, DOWNGRADE: WAITS_FOR_TRANSACTIONS if self.is_safe else ABORTS_TRANSACTIONS}


def decide(
    current: Mapping[str, int], updates: Sequence[FeatureUpdate], brokers: Mapping[BrokerId, BrokerInfo]
) -> FeatureDecision:
    """`current` are the finalised levels. Raises InvalidRequestError where the request as a whole makes no sense."""
    if not updates:
        raise InvalidRequestError("the request names no feature")
    names = [update.name for update in updates]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequestError(f"the request names feature {twice!r} twice")
    errors = {update.name: _problem(update, current.get(update.name, 0), brokers) for update in updates}
    accepted = [update for update in updates if errors[update.name] is None]
    unfinished = DOWNGRADE in current
    levels = {name: level for name, level in current.items() if name != DOWNGRADE}
    downgrades: list[FeatureUpdate] = []
    for update in accepted:
        before = levels.pop(update.name, 0)
        if update.level > 0:
            levels[update.name] = update.level
        if update.level < before or (unfinished and update.kind != UpgradeType.UPGRADE):
            downgrades.append(update)
    return FeatureDecision(
        errors,
        levels,
        bool(downgrades),
        all(update.kind != UpgradeType.UNSAFE_DOWNGRADE for update in downgrades),
    )


def _problem(
    update: FeatureUpdate, before: int, brokers: Mapping[BrokerId, BrokerInfo]
) -> InvalidUpdateVersionError | None:
    feature = SUPPORTED.get(update.name)
    if update.kind not in UpgradeType.__members__.values():
        return InvalidUpdateVersionError("The controller does not support the given upgrade type.")
    if feature is None:
        known = ", ".join(SUPPORTED)
        return InvalidUpdateVersionError(f"there is no feature {update.name!r}; there are {known}")
    if update.level < 0:
        return InvalidUpdateVersionError("A feature version cannot be less than 0.")
    if not feature.lowest <= update.level <= feature.highest:
        return InvalidUpdateVersionError(
            f"feature {update.name} has levels {feature.lowest} to {feature.highest}, not {update.level}"
        )
    if update.level < before and update.kind == UpgradeType.UPGRADE:
        return InvalidUpdateVersionError(
            f"feature {update.name} has level {before}: to lower it, ask for a downgrade (braidlog features downgrade)"
        )
    if update.level > before and update.kind != UpgradeType.UPGRADE:
        return InvalidUpdateVersionError("Can't downgrade to a newer version.")
    others = others_among(brokers.values())
    if update.level > before and others:
        return InvalidUpdateVersionError(
            f"brokers {', '.join(map(str, others))} are not braidlog's and do not know feature {update.name}: replace "
            f"them first, then ask again ({MARKER} in /brokers/ids/N tells which are ours)"
        )
    return None


def others_among(brokers: Iterable[BrokerInfo]) -> list[BrokerId]:
    return sorted(broker.id for broker in brokers if not is_ours(broker.features))
