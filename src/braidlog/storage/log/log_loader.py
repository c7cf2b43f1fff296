"""A log as it is found on disk, brought to a state that can be served.

After a clean stop nothing but names, sizes and the newest snapshot is read. After any other, every segment from the
recovery point on is read again and its checksums checked; at the first batch that is not sound the log ends, and what
followed is saved aside (see `lost_tails`). Missing or broken indexes are built again in either case.

A full disk keeps no log from being read: what the files say without it (indexes, snapshots, the epochs' checkpoint) is
held in memory, and written by the next append or stop that finds room, or found again by the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from braidlog.core.errors import CorruptLogError, is_disk_full
from braidlog.core.types import TopicPartition
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.lost_tails import LostTails, RecoveryReport, is_blank
from braidlog.storage.log.segment_file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
    file_name,
)
from braidlog.storage.log.segment_recovery import recover_segment, replay_producers
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from braidlog.wire.records.batch import HEADER_SIZE

_INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

_log = logging.getLogger(__name__)

# (partition, segments done, segments to do, bytes done, bytes to do)
RecoveryProgress = Callable[[TopicPartition, int, int, int, int], None]


class LogLoader:
    """Fills an empty `LocalLog` from its directory; `load` once."""

    def __init__(
        self,
        log: LocalLog,
        *,
        log_start_offset: int,
        recovery_point: int,
        clean: bool,
        progress: RecoveryProgress | None,
    ) -> None:
        self._local_log = log
        self._start = log_start_offset
        self._recovery_point = recovery_point
        self._clean = clean
        self._progress = progress
        self._lost_tails = LostTails(log)
        self.report = RecoveryReport(clean=clean)
        # Producer state is at the end of the log already: recovery has read it along.
        self._producers_known = False
        self._epochs_loaded = False

    def load(self) -> RecoveryReport:
        log = self._local_log
        # After a crash the directory's own entry may not have been synced.
        log.entry_unsynced = not self._clean or not log.files.exists(log.directory)
        log.files.mkdir(log.directory)
        self.report.removed_files += self._complete_interrupted_swaps()
        names = log.files.listdir(log.directory)
        for name in names:
            base_offset = base_offset_of(name)
            if name.endswith(LOG_SUFFIX) and base_offset is not None:
                log.segments.add(log.open_segment(base_offset))
        log.snapshots.find(names)
        self._load_epochs()
        first_unsynced = len(log.segments.items)
        if not self._clean and log.segments.items:
            first_unsynced = log.segments.floor(self._recovery_point)
        self._repair_indexes(set(names), first_unsynced)
        if first_unsynced < len(log.segments.items):
            self._recover(first_unsynced)
        self._settle_end()
        self._settle_epochs()
        self._settle_producers()
        return self.report

    # --- interrupted deletions and compactions

    def _complete_interrupted_swaps(self) -> list[str]:
        """Bring the directory into the state that an undisturbed run would have left; returns what was removed.

        .deleted   going anyway: removed
        .cleaned   compaction had not finished: removed, and with it every `.swap` at or past the lowest of them,
                   because they belong to the same unfinished set
        .swap      compaction had finished: the old segments in their range go, the swap is completed
        .tmp       a file that was about to replace another: removed
        """
        log = self._local_log
        names = log.files.listdir(log.directory)
        removed = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))]
        unfinished = [base_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
        lowest = min((base for base in unfinished if base is not None), default=None)
        swapped: list[str] = []
        for name in names:
            if name.endswith(SWAP_SUFFIX):
                base = base_offset_of(name)
                if base is None or (lowest is not None and base >= lowest):
                    removed.append(name)
                else:
                    swapped.append(name)
        self._remove(removed)
        replaced = self._complete_swap(swapped) if swapped else []
        orphans = self._orphaned_indexes()
        self._remove(orphans)
        return removed + replaced + orphans

    def _complete_swap(self, swapped: list[str]) -> list[str]:
        log = self._local_log
        lower: int | None = None
        upper = -1
        for name in swapped:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                base = base_offset_of(name)
                assert base is not None
                segment = log.open_segment(base, SWAP_SUFFIX)
                lower = base if lower is None else min(lower, base)
                upper = max(upper, segment.read_next_offset(), base + 1)
                segment.release()
        replaced: list[str] = []
        if lower is not None:
            for name in log.files.listdir(log.directory):
                base = base_offset_of(name)
                is_segment = name.endswith((LOG_SUFFIX, *_INDEX_SUFFIXES))
                if is_segment and base is not None and lower <= base < upper:
                    replaced.append(name)
        self._remove(replaced)
        for name in sorted(swapped, key=_log_last):
            path = f"{log.directory}/{name}"
            log.files.rename(path, path.removesuffix(SWAP_SUFFIX))
        log.files.sync_dir(log.directory)
        _log.info("%s: completed an interrupted compaction of offsets %s to %d", log.topic_partition, lower, upper - 1)
        return replaced

    def _orphaned_indexes(self) -> list[str]:
        log = self._local_log
        names = log.files.listdir(log.directory)
        logs = {base_offset_of(name) for name in names if name.endswith(LOG_SUFFIX)}
        return [name for name in names if name.endswith(_INDEX_SUFFIXES) and base_offset_of(name) not in logs]

    def _remove(self, names: list[str]) -> None:
        log = self._local_log
        for name in names:
            log.files.remove(f"{log.directory}/{name}")

    # --- segments

    def _repair_indexes(self, names: set[str], count: int) -> None:
        """Of the first `count` segments, which are not read again as a whole."""
        for segment in self._local_log.segments.items[:count]:
            problem = self._index_problem(segment, names)
            if problem is not None:
                _log.warning("%s; building the indexes of this segment again", problem)
                self._rebuild(segment)

    def _index_problem(self, segment: LogSegment, names: set[str]) -> str | None:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = file_name(segment.base_offset, suffix)
            if name not in names:
                return f"{self._local_log.directory}/{name} is missing"
        try:
            segment.offset_index.check(segment.size)
            segment.time_index.check()
            segment.txn_index.entries()
        except CorruptLogError as corrupt:
            return str(corrupt)
        if not self._clean and not _points_at_a_batch(segment):
            # Indexes are synced later than what they index: a power cut may have left an older one.
            return f"{segment.offset_index.file.path}: its last entry points at no batch"
        return None

    def _rebuild(self, segment: LogSegment) -> None:
        log = self._local_log
        producers: ProducerStateManager | None = None
        try:
            segment.txn_index.entries()
        except CorruptLogError:
            producers = self._producers_at(segment.base_offset)
        result = recover_segment(segment, producers, None)
        if result.reason is not None:
            # Below the recovery point the segments that follow are synced and stay: the log gets a gap.
            self._cut(segment, result.valid_bytes, result.next_offset, result.reason, result.torn)
        with self._as_far_as_there_is_room():
            segment.become_inactive()
        self.report.rebuilt_indexes += [segment.offset_index.file.path, segment.time_index.file.path]
        self.report.segments_scanned += 1
        self.report.bytes_scanned += segment.size
        log.directory_changed = True

    def _recover(self, first: int) -> None:
        log = self._local_log
        todo = log.segments.items[first:]
        total = sum(segment.size for segment in todo)
        done = 0
        producers = log.producer_state
        base = todo[0].base_offset
        self._load_producers(producers, base)
        for number, segment in enumerate(todo):
            self._report_progress(number, len(todo), done, total)
            producers.end_offset = max(producers.end_offset, segment.base_offset)
            if number > 0:
                with self._as_far_as_there_is_room():
                    log.snapshots.write(producers, sync=False)
            done += segment.size
            result = recover_segment(segment, producers, log.leader_epochs)
            self.report.segments_scanned += 1
            self.report.bytes_scanned += segment.size
            if result.torn and segment is todo[-1] and is_blank(segment, result.valid_bytes):
                self._trim(segment, result.valid_bytes, result.next_offset)
            elif result.reason is not None:
                self._cut(segment, result.valid_bytes, result.next_offset, result.reason, result.torn)
                for later in todo[number + 1 :]:
                    reason = f"it follows the corrupt segment {file_name(segment.base_offset)}"
                    self.report.lost.append(self._lost_tails.save_segment(later, reason))
                    log.segments.remove(later)
                # A power cut must not bring them back behind what will be appended in their place.
                log.files.sync_dir(log.directory)
            if segment is not log.segments.active:
                with self._as_far_as_there_is_room():
                    segment.become_inactive()
            if result.reason is not None:
                break
        self._report_progress(len(todo), len(todo), done, total)
        log.directory_changed = True
        self._producers_known = True

    def _trim(self, segment: LogSegment, position: int, next_offset: int) -> None:
        """Kafka's preallocated segments end so after a crash, and files of any kind after some power cuts."""
        size = segment.size - position
        self.report.blank_bytes += size
        _log.warning(
            "%s: cutting off %d zero bytes behind offset %d: room that was set aside, or was never written before a "
            "power cut",
            segment.log_path,
            size,
            next_offset - 1,
        )
        segment.truncate_at(position, next_offset)
        segment.sync()

    def _cut(self, segment: LogSegment, position: int, next_offset: int, reason: str, torn: bool) -> None:
        self.report.lost.append(self._lost_tails.save_tail(segment, position, next_offset, reason, torn=torn))
        segment.truncate_at(position, next_offset)
        segment.sync()

    @contextmanager
    def _as_far_as_there_is_room(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            if not is_disk_full(problem):
                raise
            _log.warning("%s: not written for now: %s", self._local_log.topic_partition, problem)

    def _report_progress(self, segments: int, all_segments: int, size: int, all_size: int) -> None:
        if self._progress is not None:
            self._progress(self._local_log.topic_partition, segments, all_segments, size, all_size)

    # --- offsets

    def _settle_end(self) -> None:
        log = self._local_log
        items = log.segments.items
        while len(items) > 1 and items[-1].size == 0 and items[-2].read_next_offset() > items[-1].base_offset:
            # The remains of a roll that failed while its predecessor went on growing.
            empty = items[-1]
            log.segments.remove(empty)
            empty.remove()
        end = items[-1].read_next_offset() if items else self._start
        if items and end < self._start:
            _log.warning(
                "%s ends at offset %d, before its start offset %d: dropping what is left of it",
                log.topic_partition,
                end,
                self._start,
            )
            for segment in items[:]:
                log.segments.remove(segment)
                self.report.removed_files.append(segment.log_path)
                segment.remove()
            end = self._start
            self._producers_known = False
        if not items:
            log.segments.add(log.new_segment(end))
        active = log.segments.active
        active.resume_appending()
        # The process that crashed may have preallocated it.
        active.reserved = active.reserved or not self._clean
        active.remember_end_position(end)
        log.log_end_offset = log.next_offset = end
        log.log_start_offset = max(self._start, log.segments.first.base_offset)
        untouched = self._clean and not self.report.lost
        log.recovery_point = end if untouched else min(self._recovery_point, end)

    # --- epochs

    def _load_epochs(self) -> None:
        try:
            self._epochs_loaded = self._local_log.leader_epochs.load()
        except CorruptLogError as problem:
            _log.warning("%s; reading the epochs from the log again", problem)

    def _settle_epochs(self) -> None:
        log = self._local_log
        if not self._epochs_loaded:
            log.leader_epochs.clear()
            for segment in log.segments.items:
                walk = segment.walk(0)
                while walk.advance():
                    if walk.leader_epoch > log.leader_epochs.latest:
                        log.leader_epochs.assign(walk.leader_epoch, walk.base_offset)
                    elif walk.magic < 2:
                        log.leader_epochs.clear()
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        log.leader_epochs.truncate_from_start(log.log_start_offset)
        if log.leader_epochs.changed:
            with self._as_far_as_there_is_room():
                log.leader_epochs.save()

    # --- producers

    def _load_producers(self, producers: ProducerStateManager, up_to: int) -> None:
        """State as of `up_to`, where a segment starts."""
        log = self._local_log
        log.snapshots.load(producers, self._start, up_to, log.clock.wall_ms())
        replay_producers(producers, log.segments.items, up_to)

    def _producers_at(self, offset: int) -> ProducerStateManager:
        producers = ProducerStateManager(
            str(self._local_log.topic_partition), self._local_log.producer_state.expiration_ms
        )
        self._load_producers(producers, offset)
        return producers

    def _settle_producers(self) -> None:
        log = self._local_log
        producers = log.producer_state
        end = log.log_end_offset
        log.snapshots.remove_stray([segment.base_offset for segment in log.segments.items])
        log.snapshots.remove_outside(log.log_start_offset, end)
        if self._producers_known:
            return
        had_snapshots = bool(log.snapshots.offsets)
        log.snapshots.load(producers, log.log_start_offset, end, log.clock.wall_ms())
        if had_snapshots or not self._clean:
            replay_producers(producers, log.segments.items, end)
        else:
            # A log that was closed without ever having a snapshot never had a producer to remember.
            producers.end_offset = end


def _points_at_a_batch(segment: LogSegment) -> bool:
    """Whether the last index entry is the place of a batch that ends at its offset, or before where several came."""
    if segment.offset_index.count == 0:
        return True
    offset, position = segment.offset_index.last()
    walk = segment.walk(position, HEADER_SIZE)
    try:
        return walk.advance() and segment.base_offset <= walk.base_offset <= walk.last_offset <= offset
    except CorruptLogError:
        return False


def _log_last(name: str) -> bool:
    return name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
