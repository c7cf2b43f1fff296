"""Records appended as a leader validates them."""

from __future__ import annotations

from braidlog.core.slices import ByteSlice
from braidlog.wire.records.validation import (
    AppendPolicy,
    ValidatedRecords,
    validate_for_append,
)
from support.record_cases import NOW

# CreateTime without bounds: generated timestamps may lie anywhere.
ANY_TIME = AppendPolicy(timestamp_after_max_ms=2**63 - 1)


def append(
    data: bytes,
    policy: AppendPolicy = ANY_TIME,
    *,
    origin: int = 0,
    version: int = 11,
    first_offset: int = 50,
) -> ValidatedRecords:
    return validate_for_append(
        ByteSlice(data, 0, len(data)),
        first_offset=first_offset,
        leader_epoch=6,
        now_ms=NOW,
        policy=policy,
        origin=origin,
        produce_version=version,
    )
