"""ISR changes that leaders here propose to the controller, a batch at a time, and what its answers mean; pure.

    proposed → waiting → in flight → stored: the new ISR counts
                  ↑          │     → refused for certain: the old one counts
                  └──────────┘     → no answer, or one that leaves it open: the same is proposed again

Until there is an answer the maximal ISR counts (`replication/progress.py`). A proposal belongs to its leader epoch:
with the next one it is void, and so is its answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from braidlog.cluster.image import PartitionInfo
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    NewLeaderElectedError,
    OperationNotAttemptedError,
    ProtocolError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import Partition
from braidlog.replication.progress import NO_BROKER_EPOCH, ReplicaProgress

log = logging.getLogger("braidlog.partitions")

# An older controller is told of ISR changes once none came for so long, or so long after it was told last.
_LINGER_S: Final = 5.0
_LONGEST_DELAY_S: Final = 60.0

# The controller knew the partition's state, and changed nothing.
_NOT_STORED = (IneligibleReplicaError, OperationNotAttemptedError)
# The partition is another broker's by now, or none's, which this one is about to hear.
_NOT_OURS = (
    FencedLeaderEpochError,
    InvalidRequestError,
    NewLeaderElectedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)


@dataclass(frozen=True, slots=True)
class IsrProposal:
    partition: Partition
    # Tells one leader epoch from the next.
    progress: ReplicaProgress
    leader_epoch: int
    partition_epoch: int
    # Each with its broker epoch, -1 where that is not known here.
    isr: tuple[tuple[int, int], ...]

    @property
    def is_current(self) -> bool:
        return self.partition.progress is self.progress and self.progress.proposed is not None


class IsrProposals:
    def __init__(self) -> None:
        # Ordered, so that a seed of the simulation gives one run.
        self._waiting: dict[Partition, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, partition: Partition) -> None:
        """Its progress proposes an ISR."""
        self._waiting[partition] = None

    def take(self, most: int) -> list[IsrProposal]:
        """The next batch; who takes it says of each what became of it."""
        taken: list[IsrProposal] = []
        while self._waiting and len(taken) < most:
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            progress = partition.progress
            if progress is None or progress.proposed is None:
                continue  # another epoch has begun
            isr = tuple(
                (each, progress.remotes[each].broker_epoch if each in progress.remotes else NO_BROKER_EPOCH)
                for each in progress.proposed
            )
            taken.append(IsrProposal(partition, progress, partition.leader_epoch, partition.partition_epoch, isr))
        return taken

    def unanswered(self, proposal: IsrProposal) -> None:
        """It may be stored, or not: the same again finds out."""
        proposal.partition.context.failed_isr_updates += 1
        if proposal.is_current:
            self.add(proposal.partition)

    def stored(self, proposal: IsrProposal, info: PartitionInfo) -> None:
        """The partition's state as it is now."""
        partition = proposal.partition
        if not proposal.is_current or info.leader_epoch != proposal.leader_epoch:
            return
        if info.partition_epoch >= partition.partition_epoch:
            log.info("%s-%d: the ISR is %s now", partition.topic, partition.index, list(info.isr))
            partition.commit_isr(info.isr, info.partition_epoch)

    def refused(self, proposal: IsrProposal, error: ProtocolError, known: PartitionInfo | None) -> bool:
        """Whether it is to be sent again; `known` is the partition's state as far as this broker's metadata has it."""
        proposal.partition.context.failed_isr_updates += 1
        if not proposal.is_current:
            return False
        partition = proposal.partition
        where = f"{partition.topic}-{partition.index}"
        if isinstance(error, _NOT_STORED):
            log.info("%s: the ISR stays %s: %s", where, list(proposal.progress.isr), error)
            partition.withdraw_isr()
        elif isinstance(error, _NOT_OURS):
            # What was proposed keeps counting until this broker's next role.
            log.info("%s: the controller has other plans with the partition: %s", where, error)
        elif (
            known is not None
            and known.leader_epoch == proposal.leader_epoch
            and known.partition_epoch > partition.partition_epoch
        ):
            # INVALID_UPDATE_VERSION: the stored state is another one, and nothing is stored over it.
            partition.commit_isr(known.isr, known.partition_epoch)
        else:
            self.add(partition)
            return True
        return False


class IsrChangePropagation:
    """When to tell a controller of what leaders here have stored themselves: soon, but not of each change alone.

    Times are seconds of one monotonic clock.
    """

    def __init__(self, now: float) -> None:
        # Ordered, as above.
        self.pending: dict[TopicPartition, None] = {}
        self._changed_s = now
        self._told_s = now

    def changed(self, partition: TopicPartition, now: float) -> None:
        self.pending[partition] = None
        self._changed_s = now

    def is_due(self, now: float) -> bool:
        return bool(self.pending) and (now - self._changed_s > _LINGER_S or now - self._told_s > _LONGEST_DELAY_S)

    def told(self, partitions: Iterable[TopicPartition], now: float) -> None:
        for partition in partitions:
            self.pending.pop(partition, None)
        self._told_s = now
