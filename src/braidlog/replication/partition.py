"""A partition as this broker plays it: its role, its log, and the high watermark's rules.

    log start <= high watermark <= vouched <= log end      consumers see up to the high watermark, followers to the end

A partition without other replicas has no `progress`: what is written, and in fsync mode synced, is committed at once.
With others, `replication/progress.py` says how far the high watermark may go, after each append and each fetch of a
follower.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from braidlog.config.log_settings import LogSettings
from braidlog.config.topic_names import is_internal
from braidlog.core.clock import Clock, SystemClock
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    UnknownLeaderEpochError,
)
from braidlog.core.quota import DEFAULT_WINDOW, QuotaWindow
from braidlog.core.replication_quota import ReplicationQuota, is_listed
from braidlog.core.slices import ByteSlice
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.replication.follower_session import FollowerTarget
from braidlog.replication.pending_ack import CommitWait, PendingAck
from braidlog.replication.progress import NO_BROKER_EPOCH, RemoteReplica, ReplicaProgress
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.log.unified_log import FetchDataInfo, LogAppendInfo, UnifiedLog
from braidlog.wire.records.append_policy import ValidatedRecords

log = logging.getLogger("braidlog.partitions")

ACKS_ALL: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
# So long a producer may take a broker for the leader that it was.
_REMEMBERED_S: Final = 60.0


def _is_live(broker_id: int) -> bool:
    return True


def _do_nothing(partition: Partition) -> None:
    pass


class ReplicationContext:
    """What partitions with other replicas need of their broker."""

    def __init__(
        self,
        clock: Clock | None = None,
        lag_s: float = 30.0,
        is_live: Callable[[int], bool] = _is_live,
        propose_isr: Callable[[Partition], None] = _do_nothing,
        sync_tail: Callable[[Partition], None] = _do_nothing,
        window: QuotaWindow = DEFAULT_WINDOW,
    ) -> None:
        """`lag_s` is replica.lag.time.max.ms; `propose_isr` is told of a partition whose progress proposes an ISR,
        `sync_tail` of one whose leader has what an earlier role left to be synced; `window` is that of the throttles of
        replication."""
        self.clock: Clock = SystemClock() if clock is None else clock
        # What throttled leaders here send, and throttled followers here receive.
        self.leader_quota = ReplicationQuota(self.clock, window)
        self.follower_quota = ReplicationQuota(self.clock, window)
        self.lag_s = lag_s
        self.is_live = is_live
        self.propose_isr = propose_isr
        self.sync_tail = sync_tail
        # How often the controller stored a smaller, and a larger ISR, and how often it did not store one.
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        # Appends with acks=all whose request timed out before they were committed.
        self.expired_produces = 0
        # Bytes that were copied from leaders, and by followers.
        self.bytes_in = 0
        self.bytes_out = 0
        # Of these, what belongs to partitions that are being reassigned.
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0


class Partition:
    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        broker_id: int,
        meter: TopicMetrics,
        context: ReplicationContext | None = None,
    ) -> None:
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
        # When this broker ceased to lead, on the context's clock.
        self._led_until = float("-inf")
        self.leader_epoch = -1
        # Of the state that the controller has stored.
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        # What `min_isr` found last, and by which settings.
        self._min_isr = 1
        self._min_isr_by: LogSettings | None = None
        # A crash would forget the leader epoch, and the next leader take the same: nothing may be written in it yet.
        self.epoch_unwritten = False
        # Whether its replicas are being moved, and this one is among those that come.
        self.is_reassigning = False
        self.is_adding = False
        # Whether the topic's lists of throttled replicas name this one, as a leader and as a follower.
        self.leader_throttled = False
        self.follower_throttled = False
        # Fetches waiting for this partition to grow.
        self.readers: list[DelayedOperation] = []
        # Of a leader that has other replicas.
        self.progress: ReplicaProgress | None = None
        self.context = ReplicationContext() if context is None else context
        # Up to where this leader's own log counts: written, and in fsync mode synced.
        self.vouched = 0
        # What followers fetch of it in their sessions.
        self.followers: list[FollowerTarget] = []
        # Appends with acks=all that are not committed yet, by offset.
        self.waits: deque[CommitWait] = deque()
        # Deletions that wait until no live replica has their records any more.
        self._deletions: list[tuple[int, Callable[[], None]]] = []
        # Where what is vouched for but not committed ends, with its size in bytes, append by append: the first of them,
        # which is mostly the only one (-1 for none), and those after it.
        self._uncommitted_end = -1
        self._uncommitted_size = 0
        self._uncommitted: deque[tuple[int, int]] = deque()

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} leader {self.leader} epoch {self.leader_epoch}>"

    def update_leader_and_isr(
        self,
        leader: int,
        leader_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        partition_epoch: int = -1,
    ) -> None:
        """Take the role that the controller gives this broker: leader or follower."""
        if self.leader == self.broker_id and leader != self.broker_id:
            self._led_until = self.context.clock.monotonic()
        if self.log is not None:
            self.log.settle_leader_epochs()
            if leader == self.broker_id and leader_epoch > self.leader_epoch:
                self.log.begin_leader_epoch(leader_epoch)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.replicas = replicas
        self._min_isr_by = None
        if leader == self.broker_id:
            self.begin_leading()
        else:
            self._end_leading()
        self.wake_readers()

    def update_throttles(self) -> None:
        """The topic has these settings now."""
        if self.log is not None:
            settings = self.log.settings
            self.leader_throttled = is_listed(
                settings.leader_replication_throttled_replicas, self.index, self.broker_id
            )
            self.follower_throttled = is_listed(
                settings.follower_replication_throttled_replicas, self.index, self.broker_id
            )

    @property
    def may_lead_soon(self) -> bool:
        """Whether a producer that takes this follower for the leader may know more than it does.

        Not where it led a moment ago: then the producer has not heard of its successor.
        """
        return self.leader != self.broker_id and self.context.clock.monotonic() - self._led_until > _REMEMBERED_S

    def begin_leading(self) -> None:
        """In a new leader epoch, or with another log: what was known of the other replicas is void."""
        partition_log = self.log
        self._uncommitted_end = -1
        self._uncommitted.clear()
        self.progress = None
        if partition_log is None:
            return
        self._vouch_for_all(partition_log)
        for broker_id in self.replicas:
            if broker_id != self.broker_id:
                now = self.context.clock.monotonic()
                end = partition_log.log_end_offset
                self.progress = ReplicaProgress(self.broker_id, self.replicas, self.isr, end, now)
                break
        self._commit_up_to(partition_log, self._committed(partition_log))

    def _vouch_for_all(self, partition_log: UnifiedLog) -> None:
        """Of what is in the log already. What flush.messages wants synced counts once it is: nobody else may ask for
        that, as the next record may be long in coming."""
        if partition_log.sync_is_due():
            self.vouched = partition_log.recovery_point
            self.context.sync_tail(self)
        else:
            self.vouched = partition_log.log_end_offset

    def _end_leading(self) -> None:
        self.progress = None
        self._uncommitted_end = -1
        self._uncommitted.clear()
        self._refuse_waits(NotLeaderOrFollowerError("this broker ceased to lead the partition; ask its leader"))

    def stop(self) -> None:
        """End the role; whoever waits is sent to look for the leader. The log stays as it is."""
        if self.leader == self.broker_id:
            self._led_until = self.context.clock.monotonic()
        self.leader = -1
        self.isr = ()
        self._end_leading()
        self.wake_readers()

    def lose_log(self) -> None:
        """Its data directory failed, or the replica is deleted."""
        self.log = None
        self.progress = None
        self._refuse_waits(KafkaStorageError("this partition's data directory went offline; see the broker's log"))
        self.wake_readers()

    def replace_log(self, moved: UnifiedLog) -> None:
        """The replica lives in another data directory now."""
        self.log = moved
        if self.leader == self.broker_id:
            self._vouch_for_all(moved)
            self._commit_up_to(moved, self._committed(moved))
        self.wake_readers()

    def require_log(self) -> UnifiedLog:
        """The log of a partition that this broker leads."""
        if self.leader != self.broker_id:
            raise NotLeaderOrFollowerError
        if self.log is None:
            raise KafkaStorageError("this partition's data directory is offline; see the broker's log")
        return self.log

    def require_replica(self) -> UnifiedLog:
        """The log of a partition that this broker leads or follows: both know of what is committed."""
        if self.leader < 0:
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

    def min_isr(self, partition_log: UnifiedLog) -> int:
        """In-sync replicas that acks=all needs: no more than there are replicas, whatever the setting says."""
        settings = partition_log.settings
        if settings is not self._min_isr_by:
            self._min_isr = min(settings.min_insync_replicas, max(1, len(self.replicas)))
            self._min_isr_by = settings
        return self._min_isr

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
        partition_log = self.require_log()
        if self.epoch_unwritten:
            raise KafkaStorageError("no space left for the leader epoch of this start; free some space")
        if acks == ACKS_ALL and len(self.isr) < self.min_isr(partition_log):
            raise NotEnoughReplicasError(
                f"{len(self.isr)} in-sync replica(s), min.insync.replicas is "
                f"{partition_log.settings.min_insync_replicas}"
            )
        return partition_log.append_as_leader(
            records,
            self.leader_epoch,
            origin=origin,
            produce_version=produce_version,
            now_ms=now_ms,
            validated=validated,
        )

    def wait_for_commit(self, offset: int, ack: PendingAck) -> None:
        """`ack` also waits for the high watermark to reach `offset`."""
        partition_log = self.log
        if partition_log is not None and partition_log.high_watermark >= offset:
            return  # a duplicate of what is committed
        ack.outstanding += 1
        wait = CommitWait(self, offset, ack)
        if ack.waits is None:
            ack.waits = [wait]
        else:
            ack.waits.append(wait)
        place = len(self.waits)
        # A duplicate ends before the last append.
        while place > 0 and self.waits[place - 1].offset > offset:
            place -= 1
        if place == len(self.waits):
            self.waits.append(wait)
        else:
            self.waits.insert(place, wait)

    def forget_ended_waits(self) -> None:
        """Of requests that were answered when their time was over."""
        while self.waits and self.waits[0].done:
            self.waits.popleft()

    def on_written(self, size: int) -> None:
        """`size` more bytes are in the log, for followers to copy."""
        for follower in self.followers:
            follower.appended(size)

    def on_write_failed(self, error: ProtocolError) -> None:
        """What is not in the log will not be committed either."""
        partition_log = self.log
        end = -1 if partition_log is None else partition_log.log_end_offset
        while self.waits and self.waits[-1].offset > end:
            _finish(self.waits.pop(), error)

    def advance_high_watermark(self, end: int, size: int) -> None:
        """This replica vouches for `size` more bytes, up to `end`: commit them as far as the others allow."""
        partition_log = self.log
        if partition_log is None or self.leader != self.broker_id:
            return
        # A sync that began in an earlier epoch may end before what counts already.
        self.vouched = max(self.vouched, end)
        if self.progress is None:
            self._commit_bytes(partition_log, end, size)
            if self.waits:
                # From when there were other replicas.
                self._release_waits(partition_log)
        else:
            if self._uncommitted_end < 0:
                self._uncommitted_end = end
                self._uncommitted_size = size
            else:
                self._uncommitted.append((end, size))
            self._commit_up_to(partition_log, self._committed(partition_log))

    def _committed(self, partition_log: UnifiedLog) -> int:
        progress = self.progress
        if progress is None:
            return self.vouched
        context = self.context
        return progress.high_watermark(
            self.vouched,
            partition_log.log_end_offset,
            self.min_isr(partition_log),
            # The time matters only for those outside of the ISR.
            0.0 if progress.is_whole else context.clock.monotonic(),
            context.lag_s,
            context.is_live,
        )

    def _commit_up_to(self, partition_log: UnifiedLog, offset: int) -> None:
        """Move the high watermark there, if it is not there yet, and complete what waited for it."""
        if offset <= partition_log.high_watermark:
            return
        size = 0
        while 0 <= self._uncommitted_end <= offset:
            size += self._uncommitted_size
            if self._uncommitted:
                self._uncommitted_end, self._uncommitted_size = self._uncommitted.popleft()
            else:
                self._uncommitted_end = -1
        # Part of an append, or records from an earlier epoch, are some bytes as well.
        self._commit_bytes(partition_log, offset, max(size, 1))
        for follower in self.followers:
            follower.mark()
        self._release_waits(partition_log)

    def _commit_bytes(self, partition_log: UnifiedLog, offset: int, size: int) -> None:
        unstable = partition_log.producer_state.first_unstable_offset() if self.readers else -1
        partition_log.advance_high_watermark(offset)
        if not self.readers:
            return
        if unstable >= 0 and partition_log.producer_state.first_unstable_offset() != unstable:
            # A transaction has ended: more than these bytes became readable for those who read committed data only.
            for reader in list(self.readers):
                reader.wake()
            return
        for reader in list(self.readers):
            reader.grown(size)

    def _release_waits(self, partition_log: UnifiedLog) -> None:
        waits = self.waits
        if not waits:
            return
        committed = partition_log.high_watermark
        error: ProtocolError | None = None
        progress = self.progress
        if progress is not None and len(progress.maximal_isr) < self.min_isr(partition_log):
            error = NotEnoughReplicasAfterAppendError(
                f"the records are written, but {len(progress.maximal_isr)} replica(s) are in sync, and "
                f"min.insync.replicas is {partition_log.settings.min_insync_replicas}"
            )
        while waits and waits[0].offset <= committed:
            _finish(waits.popleft(), error)

    def _refuse_waits(self, error: ProtocolError) -> None:
        waits = self.waits
        if waits:
            self.waits = deque()
            for wait in waits:
                _finish(wait, error)

    # Followers

    def remote_replica(self, broker_id: int, claimed_epoch: int) -> RemoteReplica:
        """What is known of a follower that fetches in the leader epoch `claimed_epoch`, -1 where it does not say."""
        progress = self.progress
        replica = progress.remotes.get(broker_id) if progress is not None else None
        if replica is not None:
            return replica
        message = f"broker {broker_id} is no replica of {self.topic}-{self.index} as far as its leader knows; try again"
        if claimed_epoch >= 0:
            # The controller told the follower first: this epoch is not known for it here yet.
            raise UnknownLeaderEpochError(message)
        raise NotLeaderOrFollowerError(message)

    def follower_fetched(
        self, replica: RemoteReplica, offset: int, log_start: int, broker_epoch: int, now: float
    ) -> None:
        """A follower's log reaches from `log_start` to `offset`; so says its fetch, which came at `now`."""
        partition_log = self.log
        progress = self.progress
        if partition_log is None or progress is None:
            return
        if broker_epoch != NO_BROKER_EPOCH and broker_epoch < replica.broker_epoch:
            raise NotLeaderOrFollowerError(f"broker {replica.broker_id} has registered anew since; fetch again")
        context = self.context
        before = replica.log_end_offset
        replica.fetched(offset, log_start, partition_log.log_end_offset, now, broker_epoch)
        if progress.may_join(replica, partition_log.high_watermark) and context.is_live(replica.broker_id):
            self._propose(progress, (*progress.isr, replica.broker_id))
        if offset != before:
            self._commit_up_to(partition_log, self._committed(partition_log))
        if self._deletions:
            self._complete_deletions()

    def is_throttled_for(self, replica: RemoteReplica) -> bool:
        """Whether what a follower copies is held to the throttle of leaders.

        Not where the high watermark waits for it: then it would leave the ISR, and producers would wait as well.
        """
        partition_log = self.log
        progress = self.progress
        if not self.leader_throttled or partition_log is None or progress is None:
            return False
        context = self.context
        now = context.clock.monotonic()
        return not progress.waits_for(replica, partition_log.log_end_offset, now, context.lag_s, context.is_live)

    # Deleting

    def delete_records(self, offset: int) -> None:
        """Hide everything below `offset` here, and on followers once their next answer has told them."""
        self.require_log().increment_log_start_offset(offset)
        self.log_start_moved()

    def log_start_moved(self) -> None:
        """Followers hear of it though nothing may ever be appended again."""
        for follower in self.followers:
            follower.mark()

    def low_watermark(self) -> int:
        """Below it no live replica has anything."""
        log_start = self.require_log().log_start_offset
        return log_start if self.progress is None else self.progress.low_watermark(log_start, self.context.is_live)

    def when_deleted(self, offset: int, done: Callable[[], None]) -> None:
        """Call `done` once the low watermark is at `offset`, or this broker leads no more; perhaps at once."""
        self._deletions.append((offset, done))
        self._complete_deletions()

    def forget_deletion(self, done: Callable[[], None]) -> None:
        self._deletions = [each for each in self._deletions if each[1] is not done]

    @property
    def waiting_deletions(self) -> int:
        return len(self._deletions)

    def _complete_deletions(self) -> None:
        waiting, self._deletions = self._deletions, []
        leads = self.log is not None and self.leader == self.broker_id
        low = self.low_watermark() if leads else -1
        for offset, done in waiting:
            if not leads or low >= offset:
                done()
            else:
                self._deletions.append((offset, done))

    # In-sync replicas

    def check_isr(self) -> None:
        """Asked from time to time: propose an ISR without those that lag behind, or with one that is back."""
        partition_log = self.log
        progress = self.progress
        if partition_log is None or progress is None:
            return
        context = self.context
        lagging = progress.lagging(partition_log.log_end_offset, context.clock.monotonic(), context.lag_s)
        if lagging:
            log.info(
                "%s-%d: %s lag behind the leader's log end %d: they leave the ISR %s",
                self.topic,
                self.index,
                lagging,
                partition_log.log_end_offset,
                list(progress.isr),
            )
            self._propose(progress, tuple([each for each in progress.isr if each not in lagging]))
        self._isr_changed(partition_log, progress)
        if self._deletions:
            # One that died holds up nothing any more.
            self._complete_deletions()

    def _propose_idle(self, partition_log: UnifiedLog, progress: ReplicaProgress) -> None:
        """Who is in sync but could not be proposed when it fetched: nothing more may come that it would fetch."""
        context = self.context
        for replica in progress.remotes.values():
            if (
                progress.may_join(replica, partition_log.high_watermark)
                and replica.is_caught_up(partition_log.log_end_offset, context.clock.monotonic(), context.lag_s)
                and context.is_live(replica.broker_id)
            ):
                self._propose(progress, (*progress.isr, replica.broker_id))

    def _propose(self, progress: ReplicaProgress, isr: tuple[int, ...]) -> None:
        progress.propose(isr)
        self.context.propose_isr(self)

    def commit_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has stored this ISR."""
        progress = self.progress
        if progress is None:
            return
        if len(isr) < len(progress.isr):
            self.context.isr_shrinks += 1
        elif len(isr) > len(progress.isr):
            self.context.isr_expands += 1
        progress.commit(isr)
        self.isr = isr
        self.partition_epoch = partition_epoch
        if self.log is not None:
            self._isr_changed(self.log, progress)

    def withdraw_isr(self) -> None:
        """What was proposed is not stored, and never will be."""
        if self.progress is not None:
            self.progress.withdraw()
            if self.log is not None:
                self._commit_up_to(self.log, self._committed(self.log))

    def _isr_changed(self, partition_log: UnifiedLog, progress: ReplicaProgress) -> None:
        """With fewer, or with enough replicas in sync the high watermark may go further."""
        self._commit_up_to(partition_log, self._committed(partition_log))
        self._propose_idle(partition_log, progress)

    # Reading

    def read(self, offset: int, max_bytes: int, isolation: int, min_one_batch: bool) -> FetchDataInfo:
        """What is committed; who may read it from a follower is for the caller to say."""
        partition_log = self.require_replica()
        committed_only = isolation == READ_COMMITTED
        limit = partition_log.last_stable_offset if committed_only else partition_log.high_watermark
        return partition_log.read(offset, max_bytes, limit, min_one_batch)

    def is_settled(self, partition_log: UnifiedLog) -> bool:
        """Whether the high watermark is past all that leaders before this one may have shown."""
        return self.progress is None or partition_log.high_watermark >= self.progress.epoch_start_offset

    def wake_readers(self) -> None:
        """Whatever they wait for, their answer is another one now."""
        if self._deletions:
            self._complete_deletions()
        for reader in list(self.readers):
            reader.wake()
        for follower in self.followers:
            follower.wake()


def _finish(wait: CommitWait, error: ProtocolError | None) -> None:
    try:
        wait.finish(error)
    except Exception as problem:
        # One request's failure is not that of the others.
        log.error("answering a request failed, a bug in braidlog, please report it", exc_info=problem)
        wait.ack.on_failure()
