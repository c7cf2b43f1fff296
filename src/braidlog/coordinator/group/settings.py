"""The settings that rule groups, as numbers; one instance serves every shard and is replaced when settings change."""

from __future__ import annotations

from dataclasses import dataclass


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
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 0x7FFF_FFFF
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    upgrade_allowed: bool = True
    downgrade_allowed: bool = True
