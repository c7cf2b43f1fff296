"""The log cleaner of a broker: picks the filthiest log, has a pass run elsewhere, and swaps the result in.

`log.cleaner.threads` logs are compacted side by side, each by a worker with a job, a thread and a process of its own.

A pass sees only files; between its start and its end the log may be truncated, deleted, moved or lose segments to
retention. So the swap checks that every segment it is about to replace, and the one after them, is still the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from braidlog.core.errors import CorruptLogError, StorageFault, is_disk_full
from braidlog.core.types import TopicPartition
from braidlog.storage.cleaner.cleaned_segment import remove_cleaned
from braidlog.storage.cleaner.cleaning_request import CleaningRequest, CleaningResult, LastRecord, LogCleaningAborted
from braidlog.storage.cleaner.pass_runner import CleanerProcessDied, PassRunner
from braidlog.storage.cleaner.policy import CleanableLog, LogToClean, SegmentSize, choose_filthiest
from braidlog.storage.dirs.checkpointing import CheckpointWrite
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.offset_checkpoint_file import CLEANER_OFFSETS, Offsets
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.jobs import Finish, Work
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.unified_log import UnifiedLog

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 3


@dataclass
class CleanerStatistics:
    passes: int = 0
    stopped: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    records_without_key: int = 0


@dataclass(slots=True)
class _Pass:
    """A pass under way, with the segments as they were when it was requested."""

    task: LogToClean
    log: UnifiedLog
    path: str
    request: CleaningRequest
    sources: tuple[LogSegment, ...]
    boundary: LogSegment
    # What is written for it is discarded.
    stopped: bool = False


class _Worker:
    """One of log.cleaner.threads."""

    def __init__(self, passes: PassRunner) -> None:
        self.passes = passes
        self.cleaning: _Pass | None = None
        # Logs that are not tried again in this run.
        self.skipped: set[TopicPartition] = set()

    def stop(self) -> None:
        if self.cleaning is not None:
            self.cleaning.stopped = True
            self.passes.stop()


class CleanerCheckpoints:
    """How far each log is compacted, as the checkpoint of its data directory says."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        # By directory path: where the dirty part of each log begins.
        self._dirty: dict[str, Offsets] = {}
        # How often each log had been truncated when that was last true.
        self._truncations: dict[TopicPartition, int] = {}
        # Directories whose checkpoint one worker is writing, and those where another has something to add to it.
        self._writing: set[str] = set()
        self._unwritten: set[str] = set()

    def first_dirty_offset(self, partition: TopicPartition) -> int | None:
        """Where the log's dirty part begins; None if it was never compacted, or truncated since."""
        log = self._manager.get(partition)
        if log is None:
            return None
        directory = self._manager.registry.directory_of(partition)
        if directory.path not in self._dirty:
            self._dirty[directory.path] = dict(directory.read_checkpoint(CLEANER_OFFSETS))
        truncations = log.truncation_count
        if self._truncations.setdefault(partition, truncations) != truncations:
            # Other records may have taken the place of those that were compacted.
            self._truncations[partition] = truncations
            self._dirty[directory.path].pop(partition, None)
        return self._dirty[directory.path].get(partition)

    def record(self, partition: TopicPartition, offset: int) -> None:
        """The log is compacted up to `offset`; in the file after `write`."""
        self._dirty[self._manager.registry.directory_of(partition).path][partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        for offsets in self._dirty.values():
            offsets.pop(partition, None)
        self._truncations.pop(partition, None)

    def write(self, path: str) -> Iterator[Work]:
        """One writer a directory: two of them could leave the older of two versions behind."""
        self._unwritten.add(path)
        if path in self._writing:
            return
        self._writing.add(path)
        try:
            while path in self._unwritten:
                self._unwritten.discard(path)
                yield self._write_of(path)
        finally:
            self._writing.discard(path)

    def _write_of(self, path: str) -> Work:
        directory = self._manager.registry.directory_named(path)
        known = self._dirty.get(path, {})
        here = self._manager.registry.logs_in(directory)
        offsets = {partition: offset for partition, offset in known.items() if partition in here}
        self._dirty[path] = offsets
        return Work(path, f"write {CLEANER_OFFSETS}", CheckpointWrite(directory, CLEANER_OFFSETS, dict(offsets)))


class LogCleaner:
    """`run` is the body of a worker's job; what `make_passes` makes reads and writes for it, in a process or here."""

    def __init__(self, manager: LogManager, make_passes: Callable[[], PassRunner]) -> None:
        self.statistics = CleanerStatistics()
        # Logs that cannot be compacted, with the reason; they are skipped until the broker restarts.
        self.uncleanable: dict[TopicPartition, str] = {}
        self._manager = manager
        self._make_passes = make_passes
        self._workers: list[_Worker] = []
        self._failures: dict[TopicPartition, int] = {}
        self._checkpoints = CleanerCheckpoints(manager)
        manager.registry.on_log_removal.append(self._log_removed)
        manager.on_closing.append(self.close)

    def is_cleaning(self, partition: TopicPartition) -> bool:
        return self._worker_on(partition) is not None

    def _worker_on(self, partition: TopicPartition) -> _Worker | None:
        for worker in self._workers:
            if worker.cleaning is not None and worker.cleaning.task.partition == partition:
                return worker
        return None

    def stop(self, partition: TopicPartition) -> None:
        """The log is about to be truncated or to leave: what is being written for it is discarded."""
        worker = self._worker_on(partition)
        if worker is not None:
            worker.stop()

    def settings_changed(self) -> None:
        """What is under way goes by the old settings, perhaps for hours: it is dropped and begun anew, as in Kafka."""
        for worker in self._workers:
            worker.stop()

    def _log_removed(self, partition: TopicPartition) -> None:
        """A later log of the same name starts dirty and unblemished."""
        self.stop(partition)
        self._checkpoints.forget(partition)
        self._failures.pop(partition, None)
        self.uncleanable.pop(partition, None)

    def close(self) -> None:
        for worker in self._workers:
            if worker.cleaning is not None:
                worker.cleaning.stopped = True
            worker.passes.close()

    def run(self, number: int = 0) -> Iterator[Work | None]:
        """As the worker of that number, compact one log after the other until none is due."""
        while len(self._workers) <= number:
            self._workers.append(_Worker(self._make_passes()))
        worker = self._workers[number]
        executor = f"cleaner {number}"
        worker.skipped.clear()
        self._finish_swaps()
        while number < self._manager.settings.log_cleaner_threads:
            task = choose_filthiest(self._candidates(worker), self._manager.clock.wall_ms())
            if task is None:
                break
            try:
                cleaning = self._request(task)
            except CorruptLogError as problem:
                self._give_up(task.partition, str(problem))
                continue
            directory = self._manager.registry.directory_of(task.partition).path
            worker.cleaning = cleaning
            try:
                yield Work(
                    directory,
                    f"clean {task.partition}",
                    self._blocking_half(worker.passes, cleaning, directory),
                    executor,
                )
            finally:
                worker.cleaning = None
            # Whether it worked or not, the same log is not tried twice in one run with the same dirty part.
            if self._checkpoints.first_dirty_offset(task.partition) in (None, task.first_dirty):
                worker.skipped.add(task.partition)
            else:
                yield from self._checkpoints.write(directory)
        worker.passes.on_idle()

    # --- choosing
    def _candidates(self, worker: _Worker) -> Iterator[CleanableLog]:
        busy = {other.cleaning.task.partition for other in self._workers if other.cleaning is not None}
        for partition, log in self._manager.items():
            if not log.settings.compacts or partition in self.uncleanable or partition in worker.skipped:
                continue
            if partition in busy:
                continue
            if log.has_unfinished_swap:
                continue
            segments = log.segments
            if len(segments) < 2:
                continue
            yield CleanableLog(
                partition,
                log.settings,
                segments,
                log.log_start_offset,
                log.log_end_offset,
                log.last_stable_offset,
                self._checkpoints.first_dirty_offset(partition),
                _first_timestamp,
            )

    def _request(self, task: LogToClean) -> _Pass:
        manager = self._manager
        log = manager.log(task.partition)
        path = f"{manager.registry.directory_of(task.partition).path}/{task.partition}"
        segments = log.segments
        sources = tuple(segment for segment in segments if segment.base_offset < task.first_uncleanable)
        request = CleaningRequest(
            directory=path,
            segments=tuple((segment.base_offset, segment.size) for segment in sources),
            first_dirty=task.first_dirty,
            first_uncleanable=task.first_uncleanable,
            now_ms=manager.clock.wall_ms(),
            delete_retention_ms=log.settings.delete_retention_ms,
            max_segment_bytes=log.settings.segment_bytes,
            max_index_bytes=log.settings.segment_index_bytes,
            index_interval_bytes=log.settings.index_interval_bytes,
            memory=manager.settings.cleaner_config.shared_by(manager.settings.log_cleaner_threads),
            producers=tuple(LastRecord(*producer) for producer in log.producer_state.last_records()),
            aborted_later=tuple(log.aborted_transactions(task.first_uncleanable, task.first_uncleanable + 1)),
        )
        return _Pass(task, log, path, request, sources, segments[len(sources)])

    # --- the pass, in the cleaner's own thread
    def _blocking_half(self, passes: PassRunner, cleaning: _Pass, directory: str) -> Callable[[], Finish | None]:
        def act() -> Finish | None:
            try:
                result = passes.run(cleaning.request, lambda: cleaning.stopped)
            except LogCleaningAborted:
                return lambda: self._was_stopped(cleaning)
            except CorruptLogError as problem:
                reason = str(problem)
                return lambda: self._unreadable(cleaning, reason)
            except CleanerProcessDied as problem:
                reason = str(problem)
                return lambda: self._failed(cleaning, reason)
            except FileNotFoundError as problem:
                reason = str(problem)
                return lambda: self._unreadable(cleaning, reason)
            except OSError as problem:
                if is_disk_full(problem):
                    reason = f"no space left to compact in {directory}: {problem}"
                    return lambda: self._no_room(cleaning, reason)
                raise StorageFault(
                    directory, f"cannot compact {cleaning.task.partition}: {problem}", problem
                ) from problem
            return lambda: self._swap(cleaning, result)

        return act

    def _was_stopped(self, cleaning: _Pass) -> None:
        self.statistics.stopped += 1
        _log.info("Compaction of %s was stopped: the log changed meanwhile", cleaning.task.partition)

    def _unreadable(self, cleaning: _Pass, reason: str) -> None:
        """Files that vanish or end early say nothing about a log that was cut meanwhile."""
        if self._is_current(cleaning):
            self._give_up(cleaning.task.partition, reason)
        else:
            self._was_stopped(cleaning)

    def _is_current(self, cleaning: _Pass) -> bool:
        is_ours = self._manager.get(cleaning.task.partition) is cleaning.log
        return is_ours and not cleaning.stopped and _is_unchanged(cleaning)

    def _failed(self, cleaning: _Pass, reason: str) -> None:
        partition = cleaning.task.partition
        self._discard(cleaning)
        self.statistics.failed += 1
        attempts = self._failures[partition] = self._failures.get(partition, 0) + 1
        if attempts >= _ATTEMPTS:
            self._give_up(partition, f"{reason} ({attempts} times)")
        else:
            _log.warning("Compaction of %s failed and is tried again later: %s", partition, reason)

    def _no_room(self, cleaning: _Pass, reason: str) -> None:
        """Says nothing about the log: however often it happens, compaction goes on when there is room."""
        self._discard(cleaning)
        self.statistics.failed += 1
        _log.warning("Compaction of %s is tried again later: %s", cleaning.task.partition, reason)

    def _give_up(self, partition: TopicPartition, reason: str) -> None:
        self.uncleanable[partition] = reason
        _log.error("%s is not compacted any more until the broker restarts: %s", partition, reason)

    # --- the swap, on the owning thread
    def _swap(self, cleaning: _Pass, result: CleaningResult) -> None:
        manager = self._manager
        partition = cleaning.task.partition
        if not self._is_current(cleaning):
            self._discard(cleaning)
            self._was_stopped(cleaning)
            return
        directory = manager.registry.directory_of(partition).path
        by_base = {segment.base_offset: segment for segment in cleaning.sources}
        with manager.failures.reporting(directory, f"swap compacted segments of {partition} in"):
            for group in result.groups:
                new = cleaning.log.open_cleaned(group.base_offset)
                old = [by_base[base_offset] for base_offset in group.replaces]
                deleted = cleaning.log.replace_segments([new], old)
                manager.deletion.remove_segments_later(partition, cleaning.log, deleted)
            self._swapped(cleaning, result)

    def _swapped(self, cleaning: _Pass, result: CleaningResult) -> None:
        partition = cleaning.task.partition
        self._checkpoints.record(partition, result.end_offset)
        self._failures.pop(partition, None)
        statistics = self.statistics
        statistics.passes += 1
        statistics.bytes_read += result.bytes_before
        statistics.bytes_kept += result.bytes_after
        statistics.records_without_key += result.records_without_key
        _log.info(
            "Compacted %s up to offset %d: %d bytes became %d, %d of %d records stayed",
            partition,
            result.end_offset,
            result.bytes_before,
            result.bytes_after,
            result.records_after,
            result.records_before,
        )

    def _finish_swaps(self) -> None:
        """Of logs whose disk was full in the middle of it."""
        manager = self._manager
        for partition, log in manager.items():
            if log.has_unfinished_swap:
                directory = manager.registry.directory_of(partition).path
                with manager.failures.reporting(directory, f"finish the swap of {partition}"):
                    manager.deletion.remove_segments_later(partition, log, log.finish_swap())

    def _discard(self, cleaning: _Pass) -> None:
        directory = cleaning.path.rpartition("/")[0]
        with disk_faults(directory, "remove unfinished compacted segments"):
            if self._manager.files.is_dir(cleaning.path):
                for segment in cleaning.sources:
                    remove_cleaned(self._manager.files, cleaning.path, segment.base_offset)


def _is_unchanged(cleaning: _Pass) -> bool:
    """Are the sources still the oldest segments of the log, whole, and followed by the segment that followed them."""
    now = cleaning.log.segments
    then = [*cleaning.sources, cleaning.boundary]
    if len(now) < len(then) or any(a is not b for a, b in zip(now, then, strict=False)):
        return False
    sizes = [size for _, size in cleaning.request.segments]
    return all(segment.size == size for segment, size in zip(cleaning.sources, sizes, strict=True))


def _first_timestamp(segment: SegmentSize) -> int:
    assert isinstance(segment, LogSegment)
    return segment.first_batch_timestamp
