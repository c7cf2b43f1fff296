"""When data counts as safe: what is synced before the recovery point moves, and what a clean stop leaves behind."""

from __future__ import annotations

from braidlog.storage.log_state import LogState


def sync_to(state: LogState, offset: int) -> None:
    """Sync every segment with data between the recovery point and `offset`, then move the recovery point. Any thread.

    Appends may go on meanwhile; what they add past `offset` may or may not be synced. The recovery point stays put if
    the log was truncated meanwhile: what was synced may no longer be what is there.
    """
    with state.lock:
        recovery_point = state.recovery_point
        truncations = state.truncations
        items = state.segments.items[:]
    now_ms = state.clock.wall_ms()
    if offset > recovery_point:
        active = items[-1]
        for number, segment in enumerate(items):
            upper = items[number + 1].base_offset if number + 1 < len(items) else offset
            if upper > recovery_point and segment.base_offset < offset:
                segment.sync()
                if segment is not active:
                    segment.sync_indexes()
        if state.epochs.changed or state.epochs.unsynced:
            state.epochs.save(sync=True)
        if state.directory_changed:
            state.directory_changed = False
            state.snapshots.sync_newest()
            state.files.sync_dir(state.directory)
    with state.lock:
        state.last_flush_ms = now_ms
        if state.truncations == truncations:
            state.recovery_point = max(state.recovery_point, offset)


def close_durably(state: LogState) -> None:
    """Leave what a clean start wants to find: whole indexes, a snapshot at the end, everything synced."""
    for segment in state.segments.items:
        segment.settle()
    state.producers.end_offset = state.log_end_offset
    if state.log_end_offset > 0:
        state.snapshots.write(state.producers, sync=True)
    sync_to(state, state.log_end_offset)
    active = state.segments.active
    active.sync_indexes()
    if state.epochs.changed or state.epochs.unsynced:
        state.epochs.save(sync=True)
