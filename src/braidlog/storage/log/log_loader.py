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

from braidlog.core.errors import CorruptLogError, is_disk_full
from braidlog.core.types import TopicPartition
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.lost_tails import RecoveryReport, is_blank, save_segment, save_tail
from braidlog.storage.log.producer_state_rebuild import replay_producers
from braidlog.storage.log.segment_file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from braidlog.storage.log.segment_recovery import recover_segment
from braidlog.storage.log.swap_recovery import base_offset_of, complete_interrupted_swaps
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from braidlog.wire.records.batch import HEADER_SIZE

_log = logging.getLogger(__name__)

# (partition, segments done, segments to do, bytes done, bytes to do)
RecoveryProgress = Callable[[TopicPartition, int, int, int, int], None]


class LogLoader:
    """Fills an empty `LocalLog` from its directory; `load` once."""

    def __init__(
        self,
        state: LocalLog,
        *,
        log_start_offset: int,
        recovery_point: int,
        clean: bool,
        progress: RecoveryProgress | None,
    ) -> None:
        self._state = state
        self._start = log_start_offset
        self._recovery_point = recovery_point
        self._clean = clean
        self._progress = progress
        self.report = RecoveryReport(clean=clean)
        # Producer state is at the end of the log already: recovery has read it along.
        self._producers_known = False
        self._epochs_loaded = False

    def load(self) -> RecoveryReport:
        state = self._state
        # After a crash nobody knows whether the directory's own entry was ever synced.
        state.entry_unsynced = not self._clean or not state.files.exists(state.directory)
        state.files.mkdir(state.directory)
        self.report.removed_files += complete_interrupted_swaps(state)
        names = state.files.listdir(state.directory)
        for name in names:
            base_offset = base_offset_of(name)
            if name.endswith(LOG_SUFFIX) and base_offset is not None:
                state.segments.add(state.open_segment(base_offset))
        state.snapshots.find(names)
        self._load_epochs()
        first_unsynced = len(state.segments.items)
        if not self._clean and state.segments.items:
            first_unsynced = state.segments.floor(self._recovery_point)
        self._repair_indexes(set(names), first_unsynced)
        if first_unsynced < len(state.segments.items):
            self._recover(first_unsynced)
        self._settle_end()
        self._settle_epochs()
        self._settle_producers()
        return self.report

    # --- segments

    def _repair_indexes(self, names: set[str], count: int) -> None:
        """Of the first `count` segments, which are not read again as a whole."""
        for segment in self._state.segments.items[:count]:
            problem = self._index_problem(segment, names)
            if problem is not None:
                _log.warning("%s; building the indexes of this segment again", problem)
                self._rebuild(segment)

    def _index_problem(self, segment: LogSegment, names: set[str]) -> str | None:
        stem = f"{segment.base_offset:020d}"
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if stem + suffix not in names:
                return f"{self._state.directory}/{stem}{suffix} is missing"
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
        state = self._state
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
        state.directory_changed = True

    def _recover(self, first: int) -> None:
        state = self._state
        todo = state.segments.items[first:]
        total = sum(segment.size for segment in todo)
        done = 0
        producers = state.producers
        base = todo[0].base_offset
        self._load_producers(producers, base)
        for number, segment in enumerate(todo):
            self._report_progress(number, len(todo), done, total)
            producers.end_offset = max(producers.end_offset, segment.base_offset)
            if number > 0:
                with self._as_far_as_there_is_room():
                    state.snapshots.write(producers, sync=False)
            done += segment.size
            result = recover_segment(segment, producers, state.epochs)
            self.report.segments_scanned += 1
            self.report.bytes_scanned += segment.size
            if result.torn and segment is todo[-1] and is_blank(segment, result.valid_bytes):
                self._trim(segment, result.valid_bytes, result.next_offset)
            elif result.reason is not None:
                self._cut(segment, result.valid_bytes, result.next_offset, result.reason, result.torn)
                for later in todo[number + 1 :]:
                    reason = f"it follows the corrupt segment {segment.base_offset:020d}"
                    self.report.lost.append(save_segment(state, later, reason))
                    state.segments.remove(later)
                # A power cut must not bring them back behind what will be appended in their place.
                state.files.sync_dir(state.directory)
            if segment is not state.segments.active:
                with self._as_far_as_there_is_room():
                    segment.become_inactive()
            if result.reason is not None:
                break
        self._report_progress(len(todo), len(todo), done, total)
        state.directory_changed = True
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
        self.report.lost.append(save_tail(self._state, segment, position, next_offset, reason, torn=torn))
        segment.truncate_at(position, next_offset)
        segment.sync()

    @contextmanager
    def _as_far_as_there_is_room(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            if not is_disk_full(problem):
                raise
            _log.warning("%s: not written for now: %s", self._state.topic_partition, problem)

    def _report_progress(self, segments: int, all_segments: int, size: int, all_size: int) -> None:
        if self._progress is not None:
            self._progress(self._state.topic_partition, segments, all_segments, size, all_size)

    # --- offsets

    def _settle_end(self) -> None:
        state = self._state
        items = state.segments.items
        while len(items) > 1 and items[-1].size == 0 and items[-2].read_next_offset() > items[-1].base_offset:
            # The remains of a roll that failed while its predecessor went on growing.
            empty = items[-1]
            state.segments.remove(empty)
            empty.remove()
        end = items[-1].read_next_offset() if items else self._start
        if items and end < self._start:
            _log.warning(
                "%s ends at offset %d, before its start offset %d: dropping what is left of it",
                state.topic_partition,
                end,
                self._start,
            )
            for segment in items[:]:
                state.segments.remove(segment)
                self.report.removed_files.append(segment.log_path)
                segment.remove()
            end = self._start
            self._producers_known = False
        if not items:
            state.segments.add(state.new_segment(end))
        active = state.segments.active
        active.resume_appending()
        # Whoever crashed may have set room aside for it.
        active.reserved = active.reserved or not self._clean
        active.remember_end_position(end)
        state.log_end_offset = state.next_offset = end
        state.log_start_offset = max(self._start, state.segments.first.base_offset)
        untouched = self._clean and not self.report.lost
        state.recovery_point = end if untouched else min(self._recovery_point, end)

    # --- epochs

    def _load_epochs(self) -> None:
        try:
            self._epochs_loaded = self._state.epochs.load()
        except CorruptLogError as problem:
            _log.warning("%s; reading the epochs from the log again", problem)

    def _settle_epochs(self) -> None:
        state = self._state
        if not self._epochs_loaded:
            state.epochs.clear()
            for segment in state.segments.items:
                walk = segment.walk(0)
                while walk.advance():
                    if walk.leader_epoch > state.epochs.latest:
                        state.epochs.assign(walk.leader_epoch, walk.base_offset)
        state.epochs.truncate_from_end(state.log_end_offset)
        state.epochs.truncate_from_start(state.log_start_offset)
        if state.epochs.changed:
            with self._as_far_as_there_is_room():
                state.epochs.save()

    # --- producers

    def _load_producers(self, producers: ProducerStateManager, up_to: int) -> None:
        """State as of `up_to`, where a segment starts."""
        state = self._state
        state.snapshots.load(producers, self._start, up_to, state.clock.wall_ms())
        replay_producers(producers, state.segments.items, up_to)

    def _producers_at(self, offset: int) -> ProducerStateManager:
        producers = ProducerStateManager(str(self._state.topic_partition), self._state.producers.expiration_ms)
        self._load_producers(producers, offset)
        return producers

    def _settle_producers(self) -> None:
        state = self._state
        producers = state.producers
        end = state.log_end_offset
        state.snapshots.remove_stray([segment.base_offset for segment in state.segments.items])
        state.snapshots.remove_outside(state.log_start_offset, end)
        if self._producers_known:
            return
        had_snapshots = bool(state.snapshots.offsets)
        state.snapshots.load(producers, state.log_start_offset, end, state.clock.wall_ms())
        if had_snapshots or not self._clean:
            replay_producers(producers, state.segments.items, end)
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
