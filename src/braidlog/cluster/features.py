"""Features of a cluster (KIP-584): which levels a broker supports, and what the finalised ones in `/feature` mean.

    group.version          1   the consumer group protocol (KIP-848)
    transaction.version    2   each end of a transaction moves the epoch (KIP-890)
    braidlog.version       1   in registrations only: tells our brokers from Apache Kafka's
    braidlog.downgrade     1   in `/feature` while a downgrade is under way: the others are off, but what they wrote is
                               still there; 2 where open transactions are aborted

Apache Kafka refuses to start where `/feature` has a level that it does not know, and on ZooKeeper it knows none. So
whatever stands there keeps Kafka out, from the first start of an ensemble that is ours until a downgrade has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
# A feature of no effect that tells our brokers from others in the same ensemble.
MARKER: Final = "braidlog.version"
MARKER_VERSIONS: Final = (1, 1)
DOWNGRADE: Final = "braidlog.downgrade"
WAITS_FOR_TRANSACTIONS: Final = 1
ABORTS_TRANSACTIONS: Final = 2


class Feature(NamedTuple):
    """A protocol whose use clients decide by more than an api's version."""

    name: str
    lowest: int
    highest: int


FEATURES: Final = (Feature(GROUP_VERSION, 0, 1), Feature(TRANSACTION_VERSION, 0, 2))
SUPPORTED: Final[Mapping[str, Feature]] = {feature.name: feature for feature in FEATURES}
# What an ensemble that we initialise begins with.
NEWEST: Final[Mapping[str, int]] = {feature.name: feature.highest for feature in FEATURES}

# The highest level of each that this braidlog knows how to work with.
KNOWN: Final[Mapping[str, int]] = {**NEWEST, MARKER: MARKER_VERSIONS[1], DOWNGRADE: ABORTS_TRANSACTIONS}


def is_ours(features: Mapping[str, object]) -> bool:
    """Whether a broker with these features in its registration is one of ours."""
    return MARKER in features
