"""When data counts as safe: what is synced before the recovery point moves, and what a clean stop leaves behind."""

from __future__ import annotations

from typing import Final

from braidlog.storage.log.local_log import LocalLog

# The owning thread may rename or remove a file between two steps of a sync; more often than this is a lost file.
_TRIES: Final = 3


def sync_to(state: LocalLog, offset: int) -> None:
    """Sync every segment with data between the recovery point and `offset`, then move the recovery point. Any thread.

    Appends may go on meanwhile; what they add past `offset` may or may not be synced. The recovery point stays put if
    the log was truncated meanwhile: what was synced may no longer be what is there.
    """
    with state.lock:
        truncations = state.truncations
    now_ms = state.clock.wall_ms()
    tries = 1
    while True:
        try:
            _sync_files(state, offset)
            break
        except FileNotFoundError:
            with state.lock:
                if state.truncations != truncations:
                    return
            if tries == _TRIES:
                raise
            tries += 1
    with state.lock:
        state.last_flush_ms = now_ms
        if state.truncations == truncations:
            state.recovery_point = max(state.recovery_point, offset)


def _sync_files(state: LocalLog, offset: int) -> None:
    with state.lock:
        recovery_point = state.recovery_point
        items = state.segments.items[:]
    if offset <= recovery_point:
        return
    active = items[-1]
    for number, segment in enumerate(items):
        upper = items[number + 1].base_offset if number + 1 < len(items) else offset
        if upper > recovery_point and segment.base_offset < offset:
            segment.sync()
            if segment is not active:
                segment.sync_indexes()
    # The segments vouch for the epochs of their batches only if the checkpoint that names them is as safe.
    directory_changed = state.directory_changed or state.epochs.unsynced
    state.directory_changed = False
    try:
        state.epochs.sync()
        if directory_changed:
            state.snapshots.sync_newest()
            state.files.sync_dir(state.directory)
        if state.entry_unsynced:
            state.files.sync_dir(state.data_directory)
            state.entry_unsynced = False
    except OSError:
        state.directory_changed = True
        raise


def close_durably(state: LocalLog) -> None:
    """Leave what a clean start wants to find: whole indexes, a snapshot at the end, everything synced."""
    state.segments.active.sync_truncation()
    for segment in state.segments.items:
        segment.become_inactive()
    state.producers.end_offset = state.log_end_offset
    if state.log_end_offset > 0:
        state.snapshots.write(state.producers, sync=True)
    state.epochs.save()
    sync_to(state, state.log_end_offset)
    state.segments.active.sync_indexes()
    state.epochs.save(sync=True)
