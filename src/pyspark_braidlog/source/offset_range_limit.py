"""Where reading begins or ends, as the options say it: not yet offsets, since only the cluster knows those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from braidlog import TopicPartition

Fallback = Literal["error", "earliest", "latest"]

# What offsets in JSON mean beside themselves.
LATEST: Final = -1
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that each partition still has."""


@dataclass(frozen=True, slots=True)
class Latest:
    """After the last record that each partition has; under read_committed after the last that is decided."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition, or LATEST, or EARLIEST; `option` is the one that said so."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in every partition."""

    timestamp_ms: int
    option: str


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for every partition."""

    timestamps_ms: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a consumer group is; `fallback` is for partitions for which it has committed nothing."""

    group: str
    fallback: Fallback


OffsetRangeLimit = Earliest | Latest | AtOffsets | AtTime | AtTimes | Committed
