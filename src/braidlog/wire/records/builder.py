"""Batches and old message sets from records: for clients, coordinators, the command line and tests."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.wire.records.reading import Record

MARKER_ABORT = 0
MARKER_COMMIT = 1


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """One v2 batch; records get offsets from `base_offset` on in order, or keep their own with `keep_offsets`."""
    raise NotImplementedError


def build_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a transaction."""
    raise NotImplementedError


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """Messages of format 0 or 1; compressed ones in one wrapper (inner offsets relative in format 1)."""
    raise NotImplementedError
