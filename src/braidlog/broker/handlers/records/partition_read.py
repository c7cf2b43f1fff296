"""What one partition has for a fetch: to a consumer what is committed, to a follower all (hot: compiled by mypyc).

A follower's fetch tells where its log ends: that moves the high watermark before the answer is made, so that the answer
carries it. A consumer in another rack may be sent to a replica there instead of being given records (KIP-392).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.broker.handlers.records.fetch_session import FetchContext, FetchTarget
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from braidlog.core.slices import FileSlice
from braidlog.replication.follower_session import FollowerSession
from braidlog.replication.partition import READ_COMMITTED, Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.storage.log.unified_log import FetchDataInfo, UnifiedLog
from braidlog.wire.generated.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
)

WITHOUT_CONVERSION_FROM: Final = 4
_RACKS_FROM: Final = 11
# Errors after which a client wants to know who leads now (KIP-951).
_LEADER_HINTS: Final = (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code)
_HINTS_FROM: Final = 12
# Errors that are found before any log is looked at.
_UNKNOWN: Final = (UnknownTopicOrPartitionError.code, UnknownTopicIdError.code, InconsistentTopicIdError.code)


class PartitionReader:
    def __init__(self, registry: PartitionRegistry) -> None:
        self._registry = registry
        # The rack of a live broker; set where replica.selector.class sends consumers to the replicas in theirs.
        self.rack_of: Callable[[int], str | None] | None = None

    def read(
        self,
        request: FetchRequest,
        context: FetchContext,
        target: FetchTarget,
        version: int,
        budget: int,
        min_one: bool,
    ) -> PartitionData:
        """At most `budget` bytes, or one batch if `min_one`; whatever goes wrong is the answer of this partition."""
        try:
            follower = context.follower
            partition: Partition | None = None
            if follower is not None:
                # The one that tells this target of changes; one that is deleted has no log.
                partition = target.partition
                if partition is not None and (partition.log is None or partition.topic_id != target.topic_id):
                    partition = None
            if partition is None:
                partition = self._partition(context, target, version)
            if target.current_leader_epoch != partition.leader_epoch:
                partition.check_epoch(target.current_leader_epoch)
            max_bytes = min(target.max_bytes, budget)
            if follower is None:
                return self._read_for_consumer(request, partition, target, version, max_bytes, min_one)
            applied = context.is_applied
            return _read_for_follower(partition, target, follower, applied, version, max_bytes, min_one)
        except Exception as problem:
            return self._failed(target, version, problem)

    def _read_for_consumer(
        self,
        request: FetchRequest,
        partition: Partition,
        target: FetchTarget,
        version: int,
        max_bytes: int,
        min_one: bool,
    ) -> PartitionData:
        # One that knows of racks may be sent here, though another broker leads.
        log = partition.require_replica() if version >= _RACKS_FROM else partition.require_log()
        if target.last_fetched_epoch >= 0 and log.may_diverge(target.last_fetched_epoch, target.fetch_offset):
            diverging = _divergence(log, target)
            if diverging is not None:
                return _diverged(log, target, diverging)
        progress = partition.progress
        if self.rack_of is not None and progress is not None and request.rack_id:
            nearest = progress.nearest_replica(request.rack_id, target.fetch_offset, self.rack_of)
            if nearest >= 0:
                redirected = _data(log, target, None)
                redirected.preferred_read_replica = nearest
                return redirected
        isolation = request.isolation_level
        read = partition.read(target.fetch_offset, max_bytes, isolation, min_one)
        data = _data(log, target, read.slice)
        if isolation == READ_COMMITTED:
            data.aborted_transactions = _aborted(log, target, read)
        if read.slice is not None:
            if version < WITHOUT_CONVERSION_FROM:
                _require_conversion_allowed(log)
            partition.meter.bytes_out += read.slice.size
        partition.meter.fetches += 1
        return data

    def _failed(self, target: FetchTarget, version: int, problem: Exception) -> PartitionData:
        error = to_protocol_error(problem, f"fetch from {target.topic}-{target.index}")
        data = PartitionData(
            partition_index=target.index,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=[] if error.code in _UNKNOWN else None,
            records=b"",
        )
        partition = self._registry.get(target.topic, target.index)
        if partition is not None:
            partition.meter.failed_fetches += 1
            if version >= _HINTS_FROM and error.code in _LEADER_HINTS:
                data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
        return data

    def _partition(self, context: FetchContext, target: FetchTarget, version: int) -> Partition:
        if version >= 13:
            if not target.topic and not context.is_authorized:
                # Inside a session the topic may have become known since.
                target.topic = self._registry.name_of(target.topic_id) or ""
            if not target.topic:
                raise UnknownTopicIdError
        partition = self._registry.get(target.topic, target.index)
        if partition is None:
            raise self._registry.missing(target.topic, target.index)
        if target.topic_id != ZERO_ID and target.topic_id != partition.topic_id:
            raise InconsistentTopicIdError
        return partition


def _read_for_follower(
    partition: Partition,
    target: FetchTarget,
    follower: FollowerSession,
    applied: bool,
    version: int,
    max_bytes: int,
    min_one: bool,
) -> PartitionData:
    """To the end of the log; unless `applied`, the partition is told first how far the follower has come."""
    log = partition.require_log()
    replica = target.replica
    if replica is None or target.partition is not partition or target.progress is not partition.progress:
        replica = partition.remote_replica(follower.replica_id, target.current_leader_epoch)
        target.link(partition, replica)
    if target.last_fetched_epoch >= 0 and log.may_diverge(target.last_fetched_epoch, target.fetch_offset):
        diverging = _divergence(log, target)
        if diverging is not None:
            return _diverged(log, target, diverging)
    end = log.log_end_offset
    records: FileSlice | None = None
    target.held = False
    is_throttled = partition.leader_throttled and target.fetch_offset != end and partition.is_throttled_for(replica)
    if is_throttled:
        allowance = follower.allowance(partition.context.leader_quota)
        target.held = allowance <= 0
        max_bytes = min(max_bytes, allowance)
    # Most fetches of a follower that keeps up name partitions of which it has everything.
    if target.fetch_offset != end and not target.held:
        records = log.read(target.fetch_offset, max_bytes, end, min_one).slice
        if records is None:
            follower.starved = True
    if not applied:
        partition.follower_fetched(
            replica, target.fetch_offset, target.log_start_offset, follower.broker_epoch, follower.last_fetch_s
        )
        target.overruled = False
    if records is not None:
        if version < WITHOUT_CONVERSION_FROM:
            _require_conversion_allowed(log)
        if is_throttled:
            follower.add_throttled(records.size, partition.context.leader_quota)
        partition.context.bytes_out += records.size
        if partition.is_reassigning:
            partition.context.reassignment_bytes_out += records.size
    return _data(log, target, records)


def _data(log: UnifiedLog, target: FetchTarget, records: FileSlice | None) -> PartitionData:
    """The partition as it is now, with these records."""
    return PartitionData(
        partition_index=target.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"" if records is None else records,
    )


def _diverged(log: UnifiedLog, target: FetchTarget, diverging: EpochEndOffset) -> PartitionData:
    data = _data(log, target, None)
    data.diverging_epoch = diverging
    return data


def _divergence(log: UnifiedLog, target: FetchTarget) -> EpochEndOffset | None:
    """Where the reader's log and this one part, if its last epoch ended elsewhere (KIP-595)."""
    known = log.end_offset_for_epoch(target.last_fetched_epoch)
    if known is None:
        raise OffsetOutOfRangeError
    epoch, end = known
    if epoch < target.last_fetched_epoch or end < target.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return None


def _aborted(log: UnifiedLog, target: FetchTarget, read: FetchDataInfo) -> list[AbortedTransaction]:
    if read.slice is None:
        return []
    # The first offset after what was read, at least.
    end = read.next_offset if read.next_offset >= 0 else log.last_stable_offset
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.aborted_transactions(target.fetch_offset, end)
    ]


def _require_conversion_allowed(log: UnifiedLog) -> None:
    if not log.settings.message_downconversion_enable:
        raise UnsupportedVersionError("message.downconversion.enable is off for this topic")
