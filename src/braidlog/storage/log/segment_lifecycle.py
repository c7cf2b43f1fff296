"""How the segments of a log come and go: rolling, truncation, deletion, and the swap after compaction."""

from __future__ import annotations

import contextlib
import logging

from braidlog.core.errors import is_disk_full
from braidlog.storage.crash_points import MID_ROLL, MID_SWAP, crash_point
from braidlog.storage.files import Files
from braidlog.storage.index.offset_index import MAX_RELATIVE_OFFSET
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.producer_state_rebuild import replay_producers
from braidlog.storage.log.segment_file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SUFFIXES, SWAP_SUFFIX, file_name

_log = logging.getLogger(__name__)


class DeletedSegment:
    """A segment whose files carry `.deleted`; `remove()` them once `file.delete.delay.ms` has passed."""

    def __init__(self, files: Files, segment: LogSegment, snapshot: str | None) -> None:
        self.base_offset = segment.base_offset
        self.size = segment.size
        self.paths = segment.paths()
        if snapshot is not None:
            self.paths.insert(0, snapshot)
        self._files = files

    def remove(self) -> None:
        """Files that are gone already, with their whole topic perhaps, are fine. Any thread."""
        for path in self.paths:
            if self._files.exists(path):
                self._files.remove(path)


def is_roll_due(state: LocalLog, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
    """Whether `size` more bytes up to `last_offset` belong into a new segment."""
    active = state.segments.active
    if active.size > state.settings.segment_bytes - size or last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if active.size > 0:
        # Age counts from the first batch's timestamp to the new one's, so that old data keeps together.
        first = active.first_batch_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - active.created_ms
        if waited > state.settings.segment_ms - active.jitter_ms:
            return True
    return active.offset_index.is_full or active.time_index.is_full


def roll(state: LocalLog, base_offset: int) -> LogSegment:
    """Close the active segment and begin one at `base_offset`; nothing may be staged."""
    active = state.segments.active
    if active.base_offset == base_offset:
        if active.size == 0:
            # Nothing in it, so it is as good as new; a full index can only be the remains of a truncation.
            active.begin_rebuild()
            active.created_ms = state.clock.wall_ms()
            active.jitter_ms = state.draw_jitter()
            return active
        raise ValueError(f"{state.topic_partition}: the active segment starts at {base_offset} and is not empty")
    # Recovery takes up at the new segment and expects the old one to end with a batch.
    active.sync_truncation()
    active.become_inactive()
    crash_point(MID_ROLL)
    try:
        segment = state.new_segment(base_offset)
        # What other segments hold is known up to here, so that recovery of this one need not read them.
        state.producers.end_offset = base_offset
        state.snapshots.write(state.producers, sync=False)
    except OSError:
        # An empty file that stayed behind while the old segment grew past it would hide those batches.
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):
                state.files.remove(f"{state.directory}/{file_name(base_offset, suffix)}")
        raise
    state.segments.add(segment)
    return segment


def retire(state: LocalLog, segments: list[LogSegment]) -> list[DeletedSegment]:
    """Take segments out of the log; their files get `.deleted`, open slices stay readable.

    Those that a full disk does not let go stay in the log; raises OSError if that is so of the first.
    """
    retired: list[DeletedSegment] = []
    for segment in segments:
        try:
            segment.change_suffix(DELETED_SUFFIX)
        except OSError as problem:
            if retired and is_disk_full(problem):
                break
            raise
        state.segments.remove(segment)
        segment.forget()
        retired.append(DeletedSegment(state.files, segment, _retire_snapshot(state, segment.base_offset)))
    state.directory_changed = True
    return retired


def _retire_snapshot(state: LocalLog, offset: int) -> str | None:
    try:
        return state.snapshots.mark_deleted(offset, DELETED_SUFFIX)
    except OSError as problem:
        # The next start removes it, as one that belongs to no segment.
        if not is_disk_full(problem):
            raise
        return None


def delete_oldest(state: LocalLog, count: int) -> list[DeletedSegment]:
    """Retire the `count` oldest segments that lie below the high watermark; at least one segment stays."""
    finished = finish_swap(state)
    items = state.segments.items
    count = min(count, len(items))
    while count > 0:
        upper = items[count].base_offset if count < len(items) else state.log_end_offset
        if upper <= state.high_watermark:
            break
        count -= 1
    if count == 0:
        return finished
    if count == len(items):
        if items[-1].size == 0:
            count -= 1
        else:
            roll(state, state.log_end_offset)
    doomed = state.segments.items[:count]
    move_start(state, state.segments.items[count].base_offset)
    return finished + retire(state, doomed)


def move_start(state: LocalLog, offset: int) -> bool:
    """The log starts at `offset` now; false where it did not start before that."""
    if offset <= state.log_start_offset:
        return False
    state.log_start_offset = offset
    state.epochs.truncate_from_start(offset)
    state.producers.on_high_watermark(offset)
    return True


def swap(state: LocalLog, new: list[LogSegment], old: list[LogSegment]) -> list[DeletedSegment]:
    """Put compacted segments (`.cleaned`, complete and synced) in the place of `old`.

    A crash before every new file is a `.swap` leaves the old ones; from then on start-up completes the swap:

        .cleaned → .swap     last segment first; a `.cleaned` at start-up means that not all were renamed
        old → .deleted       `.swap` files at start-up remove old ones in their range
        .swap → final name

    Likewise an error before that leaves the old ones, and after it the new ones, with `finish_swap` to be called again.
    """
    finished = finish_swap(state)
    with state.lock:
        try:
            for segment in sorted(new, key=_base_offset, reverse=True):
                segment.change_suffix(SWAP_SUFFIX)
                crash_point(MID_SWAP)
            state.files.sync_dir(state.directory)
        except OSError:
            _discard_cleaned(state, new)
            raise
        for segment in new:
            state.segments.add(segment)
        for segment in old:
            state.segments.remove(segment)
        state.swapped_in = new[:]
        state.swapped_out = old[:]
    return finished + finish_swap(state)


def finish_swap(state: LocalLog) -> list[DeletedSegment]:
    """What is left to do of a swap whose new segments are in the log; the files that may be removed."""
    if not state.swapped_in:
        return []
    with state.lock:
        for segment in state.swapped_out:
            if segment.suffix != DELETED_SUFFIX:
                segment.change_suffix(DELETED_SUFFIX)
                segment.forget()
        crash_point(MID_SWAP)
        for segment in state.swapped_in:
            # Unless it was deleted meanwhile.
            if segment.suffix == SWAP_SUFFIX:
                segment.change_suffix("")
            crash_point(MID_SWAP)
        state.files.sync_dir(state.directory)
        kept = [segment.base_offset for segment in state.swapped_in]
        retired = [
            DeletedSegment(
                state.files,
                segment,
                None if segment.base_offset in kept else _retire_snapshot(state, segment.base_offset),
            )
            for segment in state.swapped_out
        ]
        state.swapped_in = []
        state.swapped_out = []
        state.directory_changed = True
    return retired


def _discard_cleaned(state: LocalLog, segments: list[LogSegment]) -> None:
    """Nothing may stay under `.swap` that was not swapped in: the next start would do that, whatever came since."""
    for segment in segments:
        segment.forget()
        for suffix in SUFFIXES:
            for stage in (SWAP_SUFFIX, CLEANED_SUFFIX):
                with contextlib.suppress(OSError):
                    state.files.remove(f"{state.directory}/{file_name(segment.base_offset, suffix)}{stage}")


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset


def truncate_to(state: LocalLog, offset: int) -> bool:
    """Remove everything at or past `offset`; false where the log ended there already. Nothing may be staged."""
    if offset >= state.log_end_offset:
        # An epoch that begins at the end may conflict with the new leader's.
        state.epochs.truncate_from_end(offset)
        state.epochs.save()
        return False
    if offset < state.segments.first.base_offset:
        truncate_fully(state, offset)
        return True
    finish_swap(state)
    with state.lock:
        state.truncations += 1
        state.recovery_point = min(state.recovery_point, offset)
    _log.info("truncating %s to offset %d", state.topic_partition, offset)
    for segment in [segment for segment in state.segments.items if segment.base_offset > offset]:
        state.segments.remove(segment)
        segment.remove()
    active = state.segments.active
    active.truncate_to(offset)
    state.directory_changed = True
    # A batch that spans `offset` goes as a whole, but the offsets before it are still taken.
    state.log_end_offset = state.next_offset = offset
    state.epochs.truncate_from_end(offset)
    state.epochs.save()
    state.log_start_offset = min(state.log_start_offset, offset)
    state.high_watermark = min(state.high_watermark, offset)
    rebuild_producers(state)
    return True


def truncate_fully(state: LocalLog, offset: int) -> None:
    """Drop all data; the log goes on, empty, at `offset`."""
    finish_swap(state)
    with state.lock:
        state.truncations += 1
        state.recovery_point = min(state.recovery_point, offset)
    _log.info("dropping all data of %s; it starts again at offset %d", state.topic_partition, offset)
    for segment in state.segments.items[:]:
        state.segments.remove(segment)
        segment.remove()
    for snapshot in state.snapshots.offsets[:]:
        state.snapshots.remove(snapshot)
    state.segments.add(state.new_segment(offset))
    state.log_start_offset = state.log_end_offset = state.next_offset = state.high_watermark = offset
    state.epochs.clear()
    state.epochs.save()
    state.producers.clear(offset)


def rebuild_producers(state: LocalLog) -> None:
    """Producer state as of the log end offset, from the newest snapshot and the batches after it."""
    end = state.log_end_offset
    state.snapshots.remove_outside(state.log_start_offset, end)
    state.snapshots.load(state.producers, state.log_start_offset, end, state.clock.wall_ms())
    replay_producers(state.producers, state.segments.items, end)
    state.producers.on_high_watermark(state.high_watermark)
