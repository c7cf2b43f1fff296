"""The partitions of an internal topic as its coordinator sees them: append, read, and where things lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from braidlog.broker.environment import Executors
from braidlog.coordinator.loader import Chunk
from braidlog.coordinator.responders import AppendCallback
from braidlog.core.clock import Clock
from braidlog.core.slices import ByteSlice
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.replication.group_commit import Committer
from braidlog.replication.partition import ACKS_ALL, Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.pending_ack import AppendAck
from braidlog.storage.log.segment_file_names import LOG_SUFFIX, file_name
from braidlog.wire.records.validation import LATEST_PRODUCE_VERSION, ORIGIN_COORDINATOR


class CoordinatorLogs:
    def __init__(
        self,
        topic: str,
        registry: PartitionRegistry,
        committer: Committer,
        clock: Clock,
        executors: Executors,
        directory_of: Callable[[Partition], str],
        read_size: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._registry = registry
        self._committer = committer
        self._clock = clock
        self._executors = executors
        self._directory_of = directory_of
        self._read_size = read_size

    def append(self, partition: int, batch: bytes, done: AppendCallback) -> int:
        target = self._registry.require(self._topic, partition)
        records = ByteSlice(batch, 0, len(batch))
        now_ms = self._clock.wall_ms()
        info = self._committer.append(
            target, records, AppendAck(done), ACKS_ALL, LATEST_PRODUCE_VERSION, now_ms, ORIGIN_COORDINATOR
        )
        return info.first_offset

    def bounds(self, partition: int) -> tuple[int, int]:
        log = self._registry.require(self._topic, partition).require_log()
        return log.log_start_offset, log.log_end_offset

    async def read(self, partition: int, offset: int) -> Chunk:
        source = self._registry.require(self._topic, partition)
        log = source.require_log()
        read = log.read(offset, self._read_size(), log.log_end_offset, True)
        if read.slice is None:
            return Chunk(b"", offset)
        executor = self._executors.of(self._directory_of(source))
        data = await asyncio.get_running_loop().run_in_executor(executor, read.slice.read)
        return Chunk(data, read.next_offset)

    def when_committed(self, partition: int, offset: int, done: Callable[[], None]) -> None:
        _HighWatermarkWait(self._registry.require(self._topic, partition), offset, done).look()

    def where(self, partition: int, offset: int) -> str:
        log = self._registry.require(self._topic, partition).require_log()
        base = max((segment.base_offset for segment in log.segments if segment.base_offset <= offset), default=0)
        return f"{log.directory}/{file_name(base, LOG_SUFFIX)}"


class _HighWatermarkWait(DelayedOperation):
    """Until the high watermark has reached an offset, in the leader epoch in which the wait began."""

    def __init__(self, partition: Partition, offset: int, done: Callable[[], None]) -> None:
        super().__init__(0)
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._offset = offset
        self._done = done

    def look(self) -> None:
        partition = self._partition
        if partition.leader != partition.broker_id or partition.leader_epoch != self._leader_epoch:
            return
        if partition.log is not None and partition.log.high_watermark >= self._offset:
            self._done()
        else:
            self.watch(partition)

    def grown(self, size: int) -> None:
        log = self._partition.log
        if log is not None and log.high_watermark >= self._offset:
            self.wake()

    def on_complete(self) -> None:
        """Also after a change of leaders, or of the log: then the wait is over, or begins again."""
        self.woken = False
        self.look()
