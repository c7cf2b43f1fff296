"""A partition as its follower sees it: where it fetches from, what it appends, where it truncates to.

    leader   | epoch 1 ........ | epoch 3 .....          a follower goes on where the leader's log and its own part:
    follower | epoch 1 ........ | epoch 2 ..             at the end of the last epoch that both have (KIP-101, KIP-279)

What lies below the high watermark is on every in-sync replica, so that a leader elected among those never makes a
follower truncate below it; one that was elected uncleanly, or has lost its disk, does.
"""

from __future__ import annotations

import logging
from typing import Final

from mypy_extensions import mypyc_attr

from braidlog.core.replication_quota import UNLIMITED
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import Partition
from braidlog.storage.log.unified_log import UnifiedLog

log = logging.getLogger("braidlog.fetcher")

# What a leader answers that does not know an epoch or its end.
UNDEFINED: Final = -1


@mypyc_attr(acyclic=True)
class AppendedFetch:
    """What taking an answer did to the log."""

    __slots__ = ("moved", "rolled_at", "size", "sync_is_due")

    def __init__(self, size: int, rolled_at: int, sync_is_due: bool, moved: bool) -> None:
        self.size = size
        # Where a new segment began: what lies before it is to be synced; -1 where none did.
        self.rolled_at = rolled_at
        # `flush.messages` asks for a sync before the leader is told that these records are here.
        self.sync_is_due = sync_is_due
        # The leader is to be told: the end or the start of the log has moved.
        self.moved = moved


class PartitionFetchState:
    """One partition, followed in one leader epoch; with a new one comes a new state."""

    __slots__ = (
        "asked_offset",
        "failures",
        "has_caught_up",
        "is_followed",
        "is_held",
        "is_truncating",
        "key",
        "lag",
        "leader_epoch",
        "max_bytes",
        "partition",
        "retry_at",
        "session_number",
        "topic_id",
        "truncated_below_checkpoint",
        "unclean",
    )

    def __init__(self, partition: Partition, *, unclean: bool = False) -> None:
        """`unclean`: the leader was elected though it was not in sync."""
        self.partition = partition
        self.key = TopicPartition(partition.topic, partition.index)
        self.topic_id = partition.topic_id
        self.leader_epoch = partition.leader_epoch
        self.unclean = unclean
        # While a fetcher has it.
        self.is_followed = False
        # The fetcher's session that has it, as the fetcher counts them; 0 for none.
        self.session_number = 0
        # Until it is known from where on to fetch.
        self.is_truncating = True
        # Where the last request that named it asked from.
        self.asked_offset = UNDEFINED
        # It is left alone until then; 0 where it is not.
        self.retry_at = 0.0
        self.failures = 0
        # Committed records that are not here yet, as of the last answer.
        self.lag = 0
        # Whether the last answer left none.
        self.has_caught_up = False
        # Left out of requests, since the throttle of followers is exceeded.
        self.is_held = False
        # The most that a request asks for; a throttle may make it less.
        self.max_bytes = UNLIMITED
        # Offsets that checkpoints speak of are gone: they are to be written before anything is appended.
        self.truncated_below_checkpoint = False

    def __repr__(self) -> str:
        return f"<PartitionFetchState {self.key} of epoch {self.leader_epoch}>"

    @property
    def is_current(self) -> bool:
        """Whether the log is there, and the broker still follows in this epoch."""
        partition = self.partition
        leader = partition.leader
        return (
            partition.log is not None
            and partition.leader_epoch == self.leader_epoch
            and leader != partition.broker_id
            and leader != UNDEFINED
        )

    @property
    def log(self) -> UnifiedLog:
        found = self.partition.log
        assert found is not None, "callers look at `is_current` first"
        return found

    def position(self) -> tuple[int, int, int]:
        """What a follower tells its leader of its log: its end, the epoch of the last batch, and its start.

        By the epoch the leader finds out whether the logs have parted.
        """
        followed = self.log
        return followed.log_end_offset, followed.leader_epochs.latest, followed.log_start_offset

    # Appending

    def is_answered_by(self, records: ByteSlice | None) -> bool:
        """Whether an answer still fits: the log is as it was when the leader was asked."""
        if records is None:
            return True
        followed = self.log
        return self.asked_offset == followed.log_end_offset and not followed.has_staged

    def append(
        self, records: ByteSlice | None, leader_high_watermark: int, leader_log_start: int, now_ms: int
    ) -> AppendedFetch:
        """Write what the leader sent, and take over its high watermark and start as far as the log reaches.

        Raises StorageFault, CorruptMessageError, UnexpectedOffsetError; then nothing was appended.
        """
        followed = self.log
        size = 0
        rolled_at = -1
        moved = False
        if records is not None:
            info = followed.append_as_follower(records, now_ms=now_ms)
            if info is not None:
                size = followed.write_staged()
                moved = True
                if info.rolled:
                    rolled_at = info.first_offset
        self.partition.context.bytes_in += size
        if self.partition.is_adding:
            self.partition.context.reassignment_bytes_in += size
        self.lag = max(0, leader_high_watermark - followed.log_end_offset)
        self.has_caught_up = self.lag == 0
        # It never goes back, also where a new leader does not know yet how far the last one had come.
        if followed.advance_high_watermark(leader_high_watermark):
            self.partition.wake_readers()
        if leader_log_start > followed.log_start_offset and followed.increment_log_start_offset(
            min(leader_log_start, followed.high_watermark)
        ):
            moved = True
        return AppendedFetch(size, rolled_at, size > 0 and followed.sync_is_due(), moved)

    # Truncating

    def skip_truncation(self) -> bool:
        """For a leader that finds by itself where the logs part; false where the log has no epoch to tell it."""
        if self.log.leader_epochs.latest == UNDEFINED:
            return False
        self.is_truncating = False
        return True

    def truncate_to_high_watermark(self) -> None:
        """Where nothing is known of epochs, only what is committed is known to be the leader's, too."""
        self._truncate_to(self.log.high_watermark)
        self.is_truncating = False

    def truncate_to_epoch_end(self, epoch: int, end_offset: int) -> None:
        """The leader's epoch at or below the last one here is `epoch`, and ended at `end_offset` there.

        The leader is asked again where this log does not have that epoch.
        """
        followed = self.log
        if end_offset == UNDEFINED:
            self.truncate_to_high_watermark()
            return
        end = followed.log_end_offset
        own = followed.end_offset_for_epoch(epoch) if epoch != UNDEFINED else None
        if own is None:
            self._truncate_to(min(end_offset, end))
        elif own[0] != epoch:
            # The leader has an epoch that is unknown here: this log parted from it before that.
            self._truncate_to(min(own[1], end))
            return
        else:
            self._truncate_to(min(own[1], end_offset, end))
        self.is_truncating = False

    def move_into(self, leader_start: int, leader_end: int) -> bool:
        """The leader does not have the offset that was asked for; its log reaches from `leader_start` to `leader_end`.

        False where it lies within that by now.
        """
        end = self.log.log_end_offset
        if leader_end < end:
            self._truncate_to(leader_end)
        elif leader_start > end:
            log.info(
                "%s ends at offset %d here and starts at %d on its leader: starting over there",
                self.key,
                end,
                leader_start,
            )
            self._note_truncation(leader_start)
            self.log.truncate_fully_and_start_at(leader_start)
        else:
            return False
        self.is_truncating = False
        return True

    def _truncate_to(self, offset: int) -> None:
        followed = self.log
        if offset < followed.high_watermark:
            cause = (
                "its leader was elected though it was not in sync (unclean.leader.election.enable)"
                if self.unclean
                else "its leader was elected uncleanly before, or has lost its disk"
            )
            log.warning(
                "truncating %s to offset %d, below its high watermark %d: %s, and the records in between are lost",
                self.key,
                offset,
                followed.high_watermark,
                cause,
            )
        elif offset < followed.log_end_offset:
            log.info(
                "%s follows a leader of epoch %d: dropping offsets %d to %d, which were never committed",
                self.key,
                self.leader_epoch,
                offset,
                followed.log_end_offset - 1,
            )
        self._note_truncation(offset)
        followed.truncate_to(offset)

    def _note_truncation(self, offset: int) -> None:
        followed = self.log
        if offset < max(followed.recovery_point, followed.high_watermark, followed.log_start_offset):
            self.truncated_below_checkpoint = True
