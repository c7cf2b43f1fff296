"""The settings that rule groups, as numbers; one instance serves every shard and is replaced when settings change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class GroupOverrides(NamedTuple):
    """What one group sets for itself; None where the broker's setting counts."""

    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 0x7FFF_FFFF
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_check_interval_ms: int = 600_000
    # What one operation writes is one batch, which the log takes up to this size.
    max_batch_bytes: int = 1_048_588
    # The newer protocol (KIP-848).
    consumer_protocol: bool = True
    # The finalised level of group.version; at 0 no group of the newer protocol may stay.
    group_version: int = 1
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 0x7FFF_FFFF
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    upgrade_allowed: bool = True
    downgrade_allowed: bool = True
    # By group id.
    overrides: Mapping[str, GroupOverrides] = field(default_factory=dict)

    def session_timeout_of(self, group_id: str) -> int:
        """How long a member of the consumer protocol may be silent, in ms."""
        own = self.overrides.get(group_id)
        if own is None or own.session_timeout_ms is None:
            return self.consumer_session_timeout_ms
        return own.session_timeout_ms

    def heartbeat_interval_of(self, group_id: str) -> int:
        own = self.overrides.get(group_id)
        if own is None or own.heartbeat_interval_ms is None:
            return self.consumer_heartbeat_interval_ms
        return own.heartbeat_interval_ms
