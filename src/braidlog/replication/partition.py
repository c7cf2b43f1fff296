"""A partition as this broker plays it: its role, its log, and the high watermark's rules.

    log start <= high watermark <= log end      consumers see up to the high watermark

With only the leader in sync every written record is committed at once; followers' progress joins in with the cluster.
"""

from __future__ import annotations

from typing import Final

from braidlog.config.topic_names import is_internal
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from braidlog.core.slices import ByteSlice
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.log.unified_log import FetchDataInfo, LogAppendInfo, UnifiedLog
from braidlog.wire.records.append_policy import ValidatedRecords

ACKS_ALL: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class Partition:
    def __init__(self, topic: str, index: int, topic_id: bytes, broker_id: int, meter: TopicMetrics) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        # Coordinators keep their records in it: what they know of it must not change behind their back.
        self.internal = is_internal(topic)
        self.broker_id = broker_id
        # Shared by the partitions of a topic.
        self.meter = meter
        self.log: UnifiedLog | None = None
        self.leader = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        # A crash would forget the leader epoch, and the next leader take the same: nothing may be written in it yet.
        self.epoch_unwritten = False
        # Fetches waiting for this partition to grow.
        self.readers: list[DelayedOperation] = []

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} leader {self.leader} epoch {self.leader_epoch}>"

    def update_leader_and_isr(
        self, leader: int, leader_epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...]
    ) -> None:
        """Take the role that the controller gives this broker: leader or follower."""
        if leader == self.broker_id and self.log is not None and leader_epoch > self.leader_epoch:
            self.log.begin_leader_epoch(leader_epoch)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.replicas = replicas
        self.wake_readers()

    def stop(self) -> None:
        """End the role; whoever waits is sent to look for the leader. The log stays as it is."""
        self.leader = -1
        self.isr = ()
        self.wake_readers()

    def require_log(self) -> UnifiedLog:
        """The log of a partition that this broker leads."""
        if self.leader != self.broker_id:
            raise NotLeaderOrFollowerError
        if self.log is None:
            raise KafkaStorageError("this partition's data directory is offline; see the broker's log")
        return self.log

    def check_epoch(self, claimed: int) -> None:
        """Refuse a client whose idea of the leader epoch is older, or newer, than this broker's (KIP-320)."""
        if claimed < 0 or claimed == self.leader_epoch:
            return
        if claimed < self.leader_epoch:
            raise FencedLeaderEpochError
        raise UnknownLeaderEpochError

    # Writing

    def min_isr(self, log: UnifiedLog) -> int:
        """In-sync replicas that acks=all needs: no more than there are replicas, whatever the setting says."""
        return min(log.settings.min_insync_replicas, max(1, len(self.replicas)))

    def append(
        self,
        records: ByteSlice,
        acks: int,
        produce_version: int,
        now_ms: int,
        origin: int,
        validated: ValidatedRecords | None = None,
    ) -> LogAppendInfo:
        """Validate and stage; the data is readable, and may be acknowledged, once the round has written it.

        `validated` where that was done before (see `UnifiedLog.append_as_leader`).
        """
        log = self.require_log()
        if self.epoch_unwritten:
            raise KafkaStorageError("no space left for the leader epoch of this start; free some space")
        if acks == ACKS_ALL and len(self.isr) < self.min_isr(log):
            raise NotEnoughReplicasError(
                f"{len(self.isr)} in-sync replica(s), min.insync.replicas is {log.settings.min_insync_replicas}"
            )
        return log.append_as_leader(
            records,
            self.leader_epoch,
            origin=origin,
            produce_version=produce_version,
            now_ms=now_ms,
            validated=validated,
        )

    def advance_high_watermark(self, end: int, size: int) -> None:
        """This replica vouches for `size` more bytes, up to `end`: commit them as far as the others allow."""
        log = self.log
        if log is None:
            return
        unstable = log.producer_state.first_unstable_offset() if self.readers else -1
        log.advance_high_watermark(end)
        if not self.readers:
            return
        if unstable >= 0 and log.producer_state.first_unstable_offset() != unstable:
            # A transaction has ended: more than these bytes became readable for those who read committed data only.
            self.wake_readers()
            return
        for reader in list(self.readers):
            reader.grown(size)

    # Reading

    def read(self, offset: int, max_bytes: int, isolation: int, min_one_batch: bool) -> FetchDataInfo:
        log = self.require_log()
        limit = log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark
        return log.read(offset, max_bytes, limit, min_one_batch)

    def wake_readers(self) -> None:
        for reader in list(self.readers):
            reader.wake()
