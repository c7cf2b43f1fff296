"""Group commit: what a loop round staged is written once per log, and synced once per log where that is asked for.

    stage (handlers/produce) → write_staged, one writev a log → fdatasync in the directory's executor, if due
                             → high watermark, waiting fetches → acknowledgement

No record is shown to readers, and none acknowledged, before the write has returned; in fsync mode before the fdatasync
that covers it has: an offset that was once readable never later holds other bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from mypy_extensions import mypyc_attr

from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault
from braidlog.metrics import Histogram
from braidlog.net.round import Round
from braidlog.replication.partition import Partition
from braidlog.storage.log import Log

log = logging.getLogger("braidlog.commit")

# Runs blocking work in the executor of the partition's data directory, then calls back with the failure, if any.
RunInDirectory = Callable[[Partition, Callable[[], None], Callable[[Exception | None], None]], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingAck:
    """Appends of one request that must be durable before it is answered."""

    def __init__(self) -> None:
        # The request itself holds one until everything of it is staged.
        self.outstanding = 1
        self.failures: dict[tuple[str, int], StorageFault] = {}

    def release(self) -> None:
        self.outstanding -= 1
        if self.outstanding == 0:
            self.on_durable()

    def fail(self, partition: Partition, fault: StorageFault) -> None:
        self.failures[(partition.topic, partition.index)] = fault

    def on_durable(self) -> None:
        raise NotImplementedError


class _Sync:
    """The fdatasyncs of one log: at most one at a time, each covering all that was written before it began."""

    def __init__(self) -> None:
        self.running = False
        # How many acknowledgements the running one covers.
        self.covered = 0
        # Bytes that were written since it began.
        self.size = 0
        self.waiting: list[PendingAck] = []


class Committer:
    def __init__(
        self,
        round_: Round,
        clock: Clock,
        run_in_directory: RunInDirectory,
        on_fault: Callable[[StorageFault], None],
    ) -> None:
        self._round = round_
        self._clock = clock
        self._run_in_directory = run_in_directory
        self._on_fault = on_fault
        self._dirty: dict[Partition, list[PendingAck]] = {}
        self._syncs: dict[Partition, _Sync] = {}
        # Milliseconds that each sync took; set by the metrics page.
        self.sync_times: Histogram | None = None
        round_.on_commit(self.commit)

    @property
    def waiting(self) -> int:
        """Requests that wait for a sync."""
        return sum(len(sync.waiting) + sync.covered for sync in self._syncs.values())

    def staged(self, partition: Partition, ack: PendingAck) -> None:
        """A batch of `ack` was staged in the partition's log."""
        ack.outstanding += 1
        waiting = self._dirty.get(partition)
        if waiting is None:
            self._dirty[partition] = [ack]
            self._round.touch()
        else:
            waiting.append(ack)

    def rolled(self, partition: Partition, offset: int) -> None:
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

        self._run_in_directory(partition, work, done)

    def commit(self) -> None:
        while self._dirty:
            dirty = self._dirty
            self._dirty = {}
            for partition, acks in dirty.items():
                self._write(partition, acks)

    def _write(self, partition: Partition, acks: list[PendingAck]) -> None:
        partition_log = partition.log
        if partition_log is None:
            # Deleted, or its directory failed, since the batch was staged.
            self._refuse(partition, acks, StorageFault("", f"{partition.topic}-{partition.index} is gone"))
            return
        try:
            size = partition_log.write_staged()
        except StorageFault as fault:
            self._on_fault(fault)
            self._refuse(partition, acks, fault)
            return
        # Also while a sync runs: what it covers is not safe yet, and a duplicate of it must not be confirmed earlier.
        if partition_log.sync_is_due() or partition in self._syncs:
            sync = self._syncs.setdefault(partition, _Sync())
            sync.waiting.extend(acks)
            sync.size += size
            if not sync.running:
                self._start_sync(partition, partition_log, sync)
        else:
            partition.on_safe(partition_log.log_end_offset, size)
            for ack in acks:
                ack.release()

    def _refuse(self, partition: Partition, acks: list[PendingAck], fault: StorageFault) -> None:
        for ack in acks:
            ack.fail(partition, fault)
            ack.release()

    def _start_sync(self, partition: Partition, partition_log: Log, sync: _Sync) -> None:
        covered = sync.waiting
        sync.waiting = []
        sync.running = True
        sync.covered = len(covered)
        size = sync.size
        sync.size = 0
        end = partition_log.log_end_offset
        times = self.sync_times
        clock = self._clock

        def work() -> None:
            began = clock.monotonic()
            partition_log.sync_to(end)
            if times is not None:
                times.record((clock.monotonic() - began) * 1000.0)

        def done(failure: Exception | None) -> None:
            if failure is None and partition.log is partition_log:
                partition.on_safe(end, size)
            self._on_synced(partition, partition_log, sync, covered, failure)

        self._run_in_directory(partition, work, done)

    def _on_synced(
        self,
        partition: Partition,
        partition_log: Log,
        sync: _Sync,
        covered: list[PendingAck],
        failure: Exception | None,
    ) -> None:
        sync.running = False
        sync.covered = 0
        if failure is None:
            for ack in covered:
                ack.release()
        else:
            # Nobody knows what a failed sync left on disk: neither these nor those who wait for the next are safe.
            fault = failure if isinstance(failure, StorageFault) else StorageFault("", f"sync failed: {failure}")
            if isinstance(failure, StorageFault):
                self._on_fault(failure)
            else:
                log.error("syncing %s-%d failed", partition.topic, partition.index, exc_info=failure)
            self._refuse(partition, covered, fault)
        if sync.waiting and partition.log is partition_log:
            self._start_sync(partition, partition_log, sync)
        else:
            self._refuse(partition, sync.waiting, StorageFault("", f"{partition.topic}-{partition.index} is gone"))
            self._syncs.pop(partition, None)
        self._round.touch()
