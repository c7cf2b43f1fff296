"""A log as it lies on disk: segments, producer state, leader epochs, and how they change (hot: compiled by mypyc).

Segments roll, are truncated, deleted, replaced after compaction, and synced. `LogAppender`, `LogReader` and `LogLoader`
work on the public attributes; `UnifiedLog` is what everything outside of this package sees. Methods raise OSError;
`fault` makes a `StorageFault` of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
from types import TracebackType
from typing import Final

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.types import TopicPartition
from braidlog.storage.crash_points import MID_ROLL, MID_SWAP, crash_point
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.offset_index import MAX_RELATIVE_OFFSET
from braidlog.storage.log.leader_epoch_file_cache import LeaderEpochFileCache
from braidlog.storage.log.log_segment import LogSegment, LogSegments
from braidlog.storage.log.segment_file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SUFFIXES, SWAP_SUFFIX, file_name
from braidlog.storage.log.segment_recovery import replay_producers
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from braidlog.storage.producers.snapshot_files import SnapshotFiles

_log = logging.getLogger(__name__)

# Shared by all logs: making a generator costs more than opening a log.
_JITTER: Final = random.Random()
# Data directories of which was said that they cannot reserve.
_warned_not_preallocated: Final[set[str]] = set()


# Files may be renamed or removed between two steps of a sync; one that is missing more often than this is lost.
_SYNC_ATTEMPTS: Final = 3


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


class LocalLog:
    """log start offset <= high watermark <= log end offset <= next offset; the first two may also be equal to it."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        files: Files,
        handles: HandlePool,
        clock: Clock,
        producer_expiration_ms: int,
        jitter: random.Random | None = None,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.settings = settings
        self.files = files
        self.handles = handles
        self.clock = clock
        self.segments = LogSegments()
        self.producer_state = ProducerStateManager(str(topic_partition), producer_expiration_ms)
        self.snapshots = SnapshotFiles(files, directory)
        self.leader_epochs = LeaderEpochFileCache(files, directory)
        self.log_start_offset: int = 0
        # End of what is written: no reader sees past it.
        self.log_end_offset: int = 0
        # Where the next batch goes: past what is staged.
        self.next_offset: int = 0
        self.high_watermark: int = 0
        # Everything below survives a power cut.
        self.recovery_point: int = 0
        self.last_flush_ms: int = clock.wall_ms()
        # Held while files that a sync in another thread may look for change their names, and while the recovery
        # point moves. Cuts are counted, so that a sync that began before a truncation does not vouch for what was
        # appended after it.
        self.lock = threading.Lock()
        self.truncation_count = 0
        # Files were created, renamed or removed since the directory was last synced.
        self.directory_changed = True
        # Of a swap after compaction that a full disk keeps from being finished: the segments that came, those that
        # still have to go. Readers see the new ones already, under their `.swap` names.
        self.swapped_in: list[LogSegment] = []
        self.swapped_out: list[LogSegment] = []
        # The log's own directory is new, and its entry in the data directory not synced yet.
        self.entry_unsynced = True
        # Names of other files in the directory that were written since: to be as safe as the records.
        self._unsynced_files: list[str] = []
        self._random = jitter if jitter is not None else _JITTER

    def fingerprint(self) -> tuple[int, int, int, int, int]:
        """Differs if anything was appended, cut, rolled, removed or led since."""
        items = self.segments.items
        first = items[0].base_offset if items else -1
        return (self.log_end_offset, first, len(items), self.truncation_count, self.leader_epochs.latest)

    @property
    def data_directory(self) -> str:
        return os.path.dirname(self.directory)

    def fault(self, problem: OSError) -> StorageFault:
        """The disk's fault in the words that an operator needs."""
        reason = problem.strerror or str(problem)
        return StorageFault(self.data_directory, f"{self.topic_partition}: {reason}", problem)

    def disk_faults(self) -> DiskFaults:
        """For a block whose OSErrors are to be raised as StorageFaults of the data directory."""
        return DiskFaults(self)

    def new_segment(self, base_offset: int, suffix: str = "") -> LogSegment:
        # The cleaner's segments are written at once and to their end: nothing to set aside for later.
        reserve_bytes = self.settings.segment_bytes if self.settings.preallocate and not suffix else 0
        segment = LogSegment.create(
            self.files,
            self.handles,
            self.directory,
            base_offset,
            created_ms=self.clock.wall_ms(),
            suffix=suffix,
            interval_bytes=self.settings.index_interval_bytes,
            index_bytes=self.settings.segment_index_bytes,
            reserve_bytes=reserve_bytes,
        )
        if reserve_bytes and not segment.reserved:
            self._warn_not_preallocated(reserve_bytes)
        segment.jitter_ms = self.draw_jitter()
        self.directory_changed = True
        return segment

    def _warn_not_preallocated(self, size: int) -> None:
        """Once a data directory: appends go on as without preallocation, and fail when there is really no room."""
        if self.data_directory not in _warned_not_preallocated:
            _warned_not_preallocated.add(self.data_directory)
            _log.warning(
                "preallocate has no effect for %s: %s has no room for %d bytes, or its file system cannot reserve any",
                self.topic_partition,
                self.data_directory,
                size,
            )

    def open_segment(self, base_offset: int, suffix: str = "") -> LogSegment:
        segment = LogSegment.open(
            self.files,
            self.handles,
            self.directory,
            base_offset,
            created_ms=self.clock.wall_ms(),
            suffix=suffix,
            interval_bytes=self.settings.index_interval_bytes,
            index_bytes=self.settings.segment_index_bytes,
        )
        segment.jitter_ms = self.draw_jitter()
        return segment

    def move_to(self, directory: str) -> None:
        """Rename the log's directory."""
        with self.lock:
            self.files.rename(self.directory, directory)
            self.directory = directory
            for segment in self.segments.items:
                segment.move_to(directory)
            self.snapshots.move_to(directory)
            self.leader_epochs.move_to(directory)
        self.files.sync_dir(self.data_directory)

    def draw_jitter(self) -> int:
        bound = min(self.settings.segment_jitter_ms, self.settings.segment_ms)
        return self._random.randrange(bound) if bound > 0 else 0

    def update_settings(self, settings: LogSettings) -> None:
        self.settings = settings
        self.segments.active.interval_bytes = settings.index_interval_bytes

    # --- segments

    def is_roll_due(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether `size` more bytes up to `last_offset` belong into a new segment."""
        active = self.segments.active
        if active.size > self.settings.segment_bytes - size or last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if active.size > 0:
            # Age counts from the first batch's timestamp to the new one's, so that old data keeps together.
            first = active.first_batch_timestamp
            waited = max_timestamp - first if first >= 0 else now_ms - active.created_ms
            if waited > self.settings.segment_ms - active.jitter_ms:
                return True
        return active.offset_index.is_full or active.time_index.is_full

    def roll(self, base_offset: int) -> LogSegment:
        """Close the active segment and begin one at `base_offset`; nothing may be staged."""
        active = self.segments.active
        if active.base_offset == base_offset:
            if active.size == 0:
                # Nothing in it, so it is as good as new; a full index can only be the remains of a truncation.
                active.begin_rebuild()
                active.created_ms = self.clock.wall_ms()
                active.jitter_ms = self.draw_jitter()
                return active
            raise ValueError(f"{self.topic_partition}: the active segment starts at {base_offset} and is not empty")
        # Recovery takes up at the new segment and expects the old one to end with a batch.
        active.sync_truncation()
        active.become_inactive()
        crash_point(MID_ROLL)
        try:
            segment = self.new_segment(base_offset)
            # What other segments hold is known up to here, so that recovery of this one need not read them.
            self.producer_state.end_offset = base_offset
            self.snapshots.write(self.producer_state, sync=False)
        except OSError:
            # An empty file that stayed behind while the old segment grew past it would hide those batches.
            for suffix in SUFFIXES:
                with contextlib.suppress(OSError):
                    self.files.remove(f"{self.directory}/{file_name(base_offset, suffix)}")
            raise
        self.segments.add(segment)
        return segment

    def retire_segments(self, segments: list[LogSegment]) -> list[DeletedSegment]:
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
            self.segments.remove(segment)
            segment.forget()
            retired.append(DeletedSegment(self.files, segment, self._retire_snapshot(segment.base_offset)))
        self.directory_changed = True
        return retired

    def _retire_snapshot(self, offset: int) -> str | None:
        try:
            return self.snapshots.mark_deleted(offset, DELETED_SUFFIX)
        except OSError as problem:
            # The next start removes it, as one that belongs to no segment.
            if not is_disk_full(problem):
                raise
            return None

    def delete_oldest_segments(self, count: int) -> list[DeletedSegment]:
        """Retire the `count` oldest segments that lie below the high watermark; at least one segment stays."""
        finished = self.finish_swap()
        items = self.segments.items
        count = min(count, len(items))
        while count > 0:
            upper = items[count].base_offset if count < len(items) else self.log_end_offset
            if upper <= self.high_watermark:
                break
            count -= 1
        if count == 0:
            return finished
        if count == len(items):
            if items[-1].size == 0:
                count -= 1
            else:
                self.roll(self.log_end_offset)
        doomed = self.segments.items[:count]
        self.move_start(self.segments.items[count].base_offset)
        return finished + self.retire_segments(doomed)

    def move_start(self, offset: int) -> bool:
        """The log starts at `offset` now; false where it did not start before that."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_high_watermark(offset)
        return True

    def replace_segments(self, new: list[LogSegment], old: list[LogSegment]) -> list[DeletedSegment]:
        """Put compacted segments (`.cleaned`, complete and synced) in the place of `old`.

        A crash before every new file is a `.swap` leaves the old ones; from then on start-up completes the swap:

            .cleaned → .swap     last segment first; a `.cleaned` at start-up means that not all were renamed
            old → .deleted       `.swap` files at start-up remove old ones in their range
            .swap → final name

        Likewise an error before that leaves the old ones, and after it the new ones, with `finish_swap` to be called
        again.
        """
        finished = self.finish_swap()
        with self.lock:
            try:
                for segment in sorted(new, key=_base_offset, reverse=True):
                    segment.change_suffix(SWAP_SUFFIX)
                    crash_point(MID_SWAP)
                self.files.sync_dir(self.directory)
            except OSError:
                self._discard_cleaned(new)
                raise
            for segment in new:
                self.segments.add(segment)
            for segment in old:
                self.segments.remove(segment)
            self.swapped_in = new[:]
            self.swapped_out = old[:]
        return finished + self.finish_swap()

    def finish_swap(self) -> list[DeletedSegment]:
        """What is left to do of a swap whose new segments are in the log; the files that may be removed."""
        if not self.swapped_in:
            return []
        with self.lock:
            for segment in self.swapped_out:
                if segment.suffix != DELETED_SUFFIX:
                    segment.change_suffix(DELETED_SUFFIX)
                    segment.forget()
            crash_point(MID_SWAP)
            for segment in self.swapped_in:
                # Unless it was deleted meanwhile.
                if segment.suffix == SWAP_SUFFIX:
                    segment.change_suffix("")
                crash_point(MID_SWAP)
            self.files.sync_dir(self.directory)
            kept = [segment.base_offset for segment in self.swapped_in]
            retired = [
                DeletedSegment(
                    self.files,
                    segment,
                    None if segment.base_offset in kept else self._retire_snapshot(segment.base_offset),
                )
                for segment in self.swapped_out
            ]
            self.swapped_in = []
            self.swapped_out = []
            self.directory_changed = True
        return retired

    def _discard_cleaned(self, segments: list[LogSegment]) -> None:
        """Nothing may stay under `.swap` that was not swapped in: the next start would do that, whatever came since."""
        for segment in segments:
            segment.forget()
            for suffix in SUFFIXES:
                for stage in (SWAP_SUFFIX, CLEANED_SUFFIX):
                    with contextlib.suppress(OSError):
                        self.files.remove(f"{self.directory}/{file_name(segment.base_offset, suffix)}{stage}")

    def truncate_to(self, offset: int) -> bool:
        """Remove everything at or past `offset`; false where the log ended there already. Nothing may be staged."""
        if offset >= self.log_end_offset:
            # An epoch that begins at the end may conflict with the new leader's.
            self.leader_epochs.truncate_from_end(offset)
            self.leader_epochs.save()
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.finish_swap()
        with self.lock:
            self.truncation_count += 1
            self.recovery_point = min(self.recovery_point, offset)
        _log.info("truncating %s to offset %d", self.topic_partition, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.snapshots.remove_outside(self.log_start_offset, offset)
        self._remove_segments([segment for segment in self.segments.items if segment.base_offset > offset])
        # A power cut must not bring back what was removed behind what will be appended in its place, nor may the epochs
        # forget a part of the log that is still there.
        self.files.sync_dir(self.directory)
        active = self.segments.active
        active.truncate_to(offset)
        active.truncation_unsynced = True
        active.sync_truncation()
        self.directory_changed = True
        # A batch that spans `offset` goes as a whole, but the offsets before it are still taken.
        self.log_end_offset = self.next_offset = offset
        self.leader_epochs.truncate_from_end(offset)
        self.leader_epochs.save()
        self.high_watermark = min(self.high_watermark, offset)
        self.rebuild_producer_state()
        return True

    def _remove_segments(self, segments: list[LogSegment]) -> None:
        """The newest first: a crash in between leaves a log without gaps."""
        for segment in reversed(segments):
            self.segments.remove(segment)
            segment.remove()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all data; the log goes on, empty, at `offset`."""
        self.finish_swap()
        with self.lock:
            self.truncation_count += 1
            self.recovery_point = min(self.recovery_point, offset)
        _log.info("dropping all data of %s; it starts again at offset %d", self.topic_partition, offset)
        for snapshot in self.snapshots.offsets[:]:
            self.snapshots.remove(snapshot)
        self._remove_segments(self.segments.items[:])
        self.segments.add(self.new_segment(offset))
        self.files.sync_dir(self.directory)
        self.log_start_offset = self.log_end_offset = self.next_offset = self.high_watermark = offset
        self.leader_epochs.clear()
        self.leader_epochs.save()
        self.producer_state.clear(offset)

    def rebuild_producer_state(self) -> None:
        """Producer state as of the log end offset, from the newest snapshot and the batches after it."""
        end = self.log_end_offset
        self.snapshots.remove_outside(self.log_start_offset, end)
        self.snapshots.load(self.producer_state, self.log_start_offset, end, self.clock.wall_ms())
        replay_producers(self.producer_state, self.segments.items, end)
        self.producer_state.on_high_watermark(self.high_watermark)

    # --- durability

    def sync_to(self, offset: int) -> None:
        """Sync segments with data between the recovery point and `offset`, then move the recovery point. Any thread.

        Appends may go on meanwhile; what they add past `offset` may or may not be synced. The recovery point stays put
        if the log was truncated meanwhile: what was synced may no longer be what is there.
        """
        with self.lock:
            truncation_count = self.truncation_count
            # It may have been truncated since the sync was asked for.
            offset = min(offset, self.log_end_offset)
        now_ms = self.clock.wall_ms()
        attempts = 1
        while True:
            try:
                self._sync_files(offset)
                break
            except FileNotFoundError:
                with self.lock:
                    if self.truncation_count != truncation_count:
                        return
                if attempts == _SYNC_ATTEMPTS:
                    raise
                attempts += 1
        with self.lock:
            self.last_flush_ms = now_ms
            if self.truncation_count == truncation_count:
                self.recovery_point = max(self.recovery_point, offset)

    def sync_along(self, name: str) -> None:
        """The next sync of records syncs this file in the log's directory, too."""
        with self.lock:
            self._unsynced_files.append(name)
            self.directory_changed = True

    def _sync_files(self, offset: int) -> None:
        with self.lock:
            recovery_point = self.recovery_point
            items = self.segments.items[:]
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
        directory_changed = self.directory_changed or self.leader_epochs.unsynced
        self.directory_changed = False
        with self.lock:
            others, self._unsynced_files = self._unsynced_files, []
        try:
            for name in others:
                self.files.sync_file(f"{self.directory}/{name}")
            self.leader_epochs.sync()
            if directory_changed:
                self.snapshots.sync_newest()
                self.files.sync_dir(self.directory)
            if self.entry_unsynced:
                self.files.sync_dir(self.data_directory)
                self.entry_unsynced = False
        except OSError:
            self.directory_changed = True
            with self.lock:
                self._unsynced_files += others
            raise

    def close_durably(self) -> None:
        """Leave what a clean start wants to find: whole indexes, a snapshot at the end, everything synced."""
        self.segments.active.sync_truncation()
        for segment in self.segments.items:
            segment.become_inactive()
        self.producer_state.end_offset = self.log_end_offset
        if self.log_end_offset > 0:
            self.snapshots.write(self.producer_state, sync=True)
        self.leader_epochs.save()
        self.sync_to(self.log_end_offset)
        self.segments.active.sync_indexes()
        self.leader_epochs.save(sync=True)


class DiskFaults:
    """The context manager that `LocalLog.disk_faults` returns; a class, since mypyc makes no closure of it."""

    def __init__(self, log: LocalLog) -> None:
        self._local_log = log

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(problem, OSError):
            raise self._local_log.fault(problem) from problem


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
