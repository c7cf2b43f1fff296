"""Group commit: what a loop round staged is written once per log, and synced once per log where that is asked for.

    append (produce, coordinators, markers) → write_staged, one writev a log
                                            → fdatasync in the directory's executor, if due
                                            → high watermark, waiting fetches → acknowledgement

No record is shown to readers, and none acknowledged, before the write has returned; in fsync mode before the fdatasync
that covers it has: an offset that was once readable never later holds other bytes. With other replicas acks=all also
waits for the high watermark; followers are woken by the write, once all logs of the round are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import KafkaStorageError
from braidlog.core.slices import ByteSlice
from braidlog.metrics import Histogram
from braidlog.net.round import Round
from braidlog.replication.partition import ACKS_ALL, Partition
from braidlog.replication.pending_ack import PendingAck
from braidlog.storage.log.unified_log import LogAppendInfo, UnifiedLog
from braidlog.wire.records.append_policy import ValidatedRecords

log = logging.getLogger("braidlog.commit")

_SYNCED_SIDE_BY_SIDE: Final = 8

# Runs blocking work in the executor of a data directory, then calls back with what it raised, if anything.
RunInDirectory = Callable[[str, Callable[[], None], Callable[[Exception | None], None]], None]


class _PendingSync:
    """What of one log is written and waits to be synced."""

    __slots__ = ("acks", "end", "log", "partition", "problem", "size", "truncation_count")

    def __init__(self, partition: Partition, partition_log: UnifiedLog) -> None:
        self.partition = partition
        self.log = partition_log
        self.end = 0
        # Of the log then: what was truncated since is not vouched for, though it was synced.
        self.truncation_count = 0
        self.size = 0
        self.acks: list[PendingAck] = []
        self.problem: Exception | None = None


class _DirectorySyncs:
    """The syncs of one data directory: one group of logs at a time, the next gathers meanwhile.

    So a busy disk makes larger groups, not longer queues, and one hand-over to the executor serves a whole round.
    """

    __slots__ = ("parts", "running", "waiting")

    def __init__(self) -> None:
        # Parts of the running group that are not done yet.
        self.parts = 0
        self.waiting: dict[Partition, _PendingSync] = {}
        self.running: dict[Partition, _PendingSync] = {}


class Committer:
    def __init__(
        self,
        round_: Round,
        clock: Clock,
        directory_of: Callable[[Partition], str],
        run_in_directory: RunInDirectory,
        on_fault: Callable[[StorageFault], None],
    ) -> None:
        self._round = round_
        self._clock = clock
        self._directory_of = directory_of
        self._run_in_directory = run_in_directory
        self._on_fault = on_fault
        self._dirty: dict[Partition, list[PendingAck]] = {}
        self._directories: dict[str, _DirectorySyncs] = {}
        # Milliseconds that each sync took; set by the metrics page.
        self.sync_times: Histogram | None = None
        # Called when everything of a round is written: the fetches of followers that were woken are answered.
        self.after_writing: Callable[[], None] | None = None
        round_.on_commit(self.commit)

    @property
    def waiting(self) -> int:
        """Requests that wait for a sync."""
        count = 0
        for directory in self._directories.values():
            for due in [*directory.waiting.values(), *directory.running.values()]:
                count += len(due.acks)
        return count

    def append(
        self,
        partition: Partition,
        records: ByteSlice,
        ack: PendingAck,
        acks: int,
        produce_version: int,
        now_ms: int,
        origin: int,
        validated: ValidatedRecords | None = None,
    ) -> LogAppendInfo:
        """Validate and stage in the partition's log; `ack` is released once the append is durable or has failed.

        With acks=all and other replicas it is released a second time, when the append is committed.
        Where this raises, nothing was staged and `ack` is left alone. A disk that fails takes its directory offline
        and is raised as KAFKA_STORAGE_ERROR. All arguments are positional, since compiled callers pass those cheaply.
        """
        try:
            info = partition.append(records, acks, produce_version, now_ms, origin, validated)
        except StorageFault as fault:
            self._on_fault(fault)
            raise KafkaStorageError(str(fault)) from fault
        # A duplicate, too, is acknowledged only when the batch that it repeats is durable.
        ack.outstanding += 1
        if partition.progress is not None and acks == ACKS_ALL:
            partition.wait_for_commit(info.last_offset + 1, ack)
        waiting = self._dirty.get(partition)
        if waiting is None:
            self._dirty[partition] = [ack]
            self._round.touch()
        else:
            waiting.append(ack)
        if info.rolled:
            self.sync_rolled(partition, info.first_offset)
        return info

    def sync_tail(self, partition: Partition) -> None:
        """Sync what is written already, and let readers see it then, as if it had been appended now."""
        self._dirty.setdefault(partition, [])
        self._round.touch()

    def sync_rolled(self, partition: Partition, offset: int) -> None:
        """A segment was completed: sync it behind the scenes, so that a crash costs no more than the active one."""
        partition_log = partition.log
        if partition_log is None:
            return

        def work() -> None:
            partition_log.sync_to(offset)

        def done(failure: Exception | None) -> None:
            if isinstance(failure, StorageFault):
                self._on_fault(failure)
            elif failure is not None:
                log.error("syncing %s-%d failed", partition.topic, partition.index, exc_info=failure)

        self._run_in_directory(self._directory_of(partition), work, done)

    def commit(self) -> None:
        """Write what was staged, one write a log; then acknowledge, or sync first where that is due."""
        while self._dirty:
            dirty = self._dirty
            self._dirty = {}
            for partition, acks in dirty.items():
                partition_log = partition.log
                if partition_log is None:
                    # Deleted, or its directory failed, since the batch was staged.
                    self._complete(partition, acks, StorageFault("", f"{partition.topic}-{partition.index} is gone"))
                    continue
                try:
                    size = partition_log.write_staged()
                except Exception as problem:
                    self._complete(partition, acks, self._write_fault(partition, problem))
                    continue
                if partition.followers:
                    partition.on_written(size)
                if partition_log.sync_is_due() or (self._directories and self._is_syncing(partition)):
                    self._wait_for_sync(partition, partition_log, acks, size)
                else:
                    self._complete(partition, acks, None, partition_log.log_end_offset, size)
        for path, directory in self._directories.items():
            if directory.waiting and not directory.running:
                self._start_group(path, directory)
        if self.after_writing is not None:
            self.after_writing()

    def _write_fault(self, partition: Partition, problem: Exception) -> StorageFault:
        if isinstance(problem, StorageFault):
            self._on_fault(problem)
            return problem
        message = "writing to %s-%d failed, a bug in braidlog, please report it"
        log.error(message, partition.topic, partition.index, exc_info=problem)
        return StorageFault("", f"the broker met a bug: {type(problem).__name__}")

    def _complete(
        self, partition: Partition, acks: list[PendingAck], fault: StorageFault | None, end: int = -1, size: int = 0
    ) -> None:
        """The appends of `acks` failed, or are durable: then readers see `size` more bytes, up to `end`."""
        if end >= 0:
            try:
                partition.advance_high_watermark(end, size)
            except Exception as problem:
                # The records are durable all the same, so the requests succeed.
                message = "waking the readers of %s-%d failed, a bug in braidlog, please report it"
                log.error(message, partition.topic, partition.index, exc_info=problem)
        error: KafkaStorageError | None = None
        if fault is not None:
            error = KafkaStorageError(str(fault))
            partition.on_write_failed(error)
        for ack in acks:
            try:
                if error is not None:
                    ack.fail(partition.topic, partition.index, error)
                ack.release()
            except Exception as problem:
                # One request's failure is not that of the others in its round.
                log.error("answering a request failed, a bug in braidlog, please report it", exc_info=problem)
                ack.on_failure()

    # Syncing

    def _is_syncing(self, partition: Partition) -> bool:
        """What the running sync covers is not safe yet, so a duplicate of it must not be confirmed earlier either."""
        directory = self._directories.get(self._directory_of(partition))
        return directory is not None and (partition in directory.running or partition in directory.waiting)

    def _wait_for_sync(
        self, partition: Partition, partition_log: UnifiedLog, acks: list[PendingAck], size: int
    ) -> None:
        directory = self._directories.setdefault(self._directory_of(partition), _DirectorySyncs())
        due = directory.waiting.get(partition)
        if due is None:
            due = directory.waiting[partition] = _PendingSync(partition, partition_log)
        due.end = partition_log.log_end_offset
        due.truncation_count = partition_log.truncation_count
        due.size += size
        due.acks += acks

    def _start_group(self, path: str, directory: _DirectorySyncs) -> None:
        directory.running = directory.waiting
        directory.waiting = {}
        group = list(directory.running.values())
        # Side by side, since the file system makes one journal commit of syncs that meet; few, since each part costs a
        # hand-over to a thread.
        parts = [part for start in range(_SYNCED_SIDE_BY_SIDE) if (part := group[start::_SYNCED_SIDE_BY_SIDE])]
        directory.parts = len(parts)
        for part in parts:
            self._start_part(path, directory, group, part)

    def _start_part(
        self, path: str, directory: _DirectorySyncs, group: list[_PendingSync], part: list[_PendingSync]
    ) -> None:
        times = self.sync_times
        clock = self._clock

        def work() -> None:
            for due in part:
                began = clock.monotonic()
                try:
                    due.log.sync_to(due.end)
                except Exception as problem:
                    due.problem = problem
                if times is not None:
                    times.record((clock.monotonic() - began) * 1000.0)

        def done(failure: Exception | None) -> None:
            if failure is not None:
                for due in part:
                    due.problem = failure
            directory.parts -= 1
            if directory.parts == 0:
                self._on_synced(path, directory, group)

        self._run_in_directory(path, work, done)

    def _on_synced(self, path: str, directory: _DirectorySyncs, group: list[_PendingSync]) -> None:
        directory.running = {}
        for due in group:
            problem = due.problem
            if problem is not None:
                self._complete(due.partition, due.acks, self._sync_fault(due, problem))
            elif due.partition.log is due.log and due.truncation_count == due.log.truncation_count:
                self._complete(due.partition, due.acks, None, due.end, due.size)
            else:
                # The partition has another log now, or none, or followed another leader: readers see nothing of this.
                self._complete(due.partition, due.acks, None)
        if directory.waiting:
            self._start_group(path, directory)
        self._round.touch()

    def _sync_fault(self, due: _PendingSync, problem: Exception) -> StorageFault:
        """What a failed sync left on disk is unknown: the directory is taken offline, the requests are refused."""
        if isinstance(problem, StorageFault):
            self._on_fault(problem)
            return problem
        log.error("syncing %s-%d failed", due.partition.topic, due.partition.index, exc_info=problem)
        return StorageFault("", f"sync failed: {problem}")
