"""Names of options, and what to say of one that is nearly the name of another."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from braidlog.core.errors import UserError
from pyspark_braidlog.client_settings import PREFIX

# Of Spark's connector.
_CONNECTOR: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
)
# Of its tuning: accepted, and without a meaning here.
_WITHOUT_EFFECT: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_OWN: Final = ("groupId", "pushFilters", "startingGroupId", "startingOffsetsFallback", "maxBytesPerTrigger")
# Of our sink, and what Spark hands down to every source: none of our business, and no misspelling.
_OTHERS: Final = ("topic", "delivery", "path", "checkpointLocation", "queryName", "header", "mode")
_KNOWN: Final = {name.lower(): name for name in (*_CONNECTOR, *_OWN, *_WITHOUT_EFFECT, *_OTHERS)}
_SUGGESTED: Final = {name.lower(): name for name in (*_CONNECTOR, *_OWN)}
_ALIKE: Final = 0.85


def check_spelling(names: Iterable[str]) -> None:
    """Unknown options are ignored, as in Spark, unless the name is likely a misspelling of a known one."""
    for name in names:
        lower = name.lower()
        if lower in _KNOWN or lower.startswith(PREFIX):
            continue
        if lower == "bootstrap.servers":
            raise _unknown(name, "kafka.bootstrap.servers")
        close = get_close_matches(lower, _SUGGESTED, n=1, cutoff=_ALIKE)
        if close:
            raise _unknown(name, _SUGGESTED[close[0]])


def _unknown(name: str, meant: str) -> UserError:
    return UserError(f"there is no option {name}; did you mean {meant}?")
