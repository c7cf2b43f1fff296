"""The partitions of an internal topic as its coordinator sees them: append, read, and where things lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from braidlog.broker.environment import Executors
from braidlog.coordinator.partition_writer import AppendCallback, Chunk
from braidlog.core.clock import Clock
from braidlog.core.slices import ByteSlice
from braidlog.replication.group_commit import AppendAck, Committer
from braidlog.replication.partition import ACKS_ALL, READ_UNCOMMITTED, Partition
from braidlog.replication.partition_registry import PartitionRegistry
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
        read = source.read(offset, self._read_size(), READ_UNCOMMITTED, True)
        if read.slice is None:
            return Chunk(b"", offset)
        executor = self._executors.of(self._directory_of(source))
        data = await asyncio.get_running_loop().run_in_executor(executor, read.slice.read)
        return Chunk(data, read.next_offset)

    def where(self, partition: int, offset: int) -> str:
        log = self._registry.require(self._topic, partition).require_log()
        base = max((segment.base_offset for segment in log.segments if segment.base_offset <= offset), default=0)
        return f"{log.directory}/{file_name(base, LOG_SUFFIX)}"
