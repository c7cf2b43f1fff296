"""Asks the controller to store the ISRs that leaders here propose (AlterPartition), one request at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from braidlog.cluster.image import ClusterImage, ImageDelta
from braidlog.cluster.store import SessionExpiredError, SessionLease, StoreConnectionError
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.tasks import Tasks
from braidlog.core.time_slice import TimeSlice
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.net.outbound.errors import ClientError
from braidlog.replication.isr import IsrProposal, IsrProposals
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.storage.jobs import Job

log = logging.getLogger("braidlog.partitions")

# Partitions of one request.
_MOST: Final = 1000
# After an attempt without an answer; each one more takes twice as long.
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
# Partitions that are looked at before others are served.
_AT_A_TIME: Final = 100

AskController = Callable[[Sequence[PartitionChange]], Awaitable[Sequence[AlterPartitionResult]]]


class AlterPartitionManager:
    """Without a session nothing is sent, and what was proposed waits: the maximal ISR keeps it safe."""

    def __init__(
        self,
        registry: PartitionRegistry,
        ask: AskController,
        image: Callable[[], ClusterImage],
        lease: Callable[[], SessionLease],
        tasks: Tasks,
    ) -> None:
        self._registry = registry
        self._ask = ask
        self._image = image
        self._lease = lease
        self._tasks = tasks
        self._proposals = IsrProposals()
        self._is_sending = False

    def propose(self, partition: Partition) -> None:
        self._proposals.add(partition)
        if not self._is_sending:
            self._is_sending = True
            self._tasks.spawn("alter partitions", self._send())

    async def _send(self) -> None:
        """As long as there are any; what one round proposes, or comes while a request is under way, goes together."""
        pause_s = 0.0
        try:
            while self._proposals:
                taken = self._proposals.take(_MOST)
                if not taken:
                    continue
                problem = await self._send_once(taken)
                if problem is None:
                    pause_s = 0.0
                    continue
                if pause_s == 0.0:
                    log.info("ISR changes of %d partitions are not stored yet, they are sent again: %s", *problem)
                pause_s = min(max(pause_s * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
                await asyncio.sleep(pause_s)
        finally:
            self._is_sending = False

    async def _send_once(self, taken: list[IsrProposal]) -> tuple[int, object] | None:
        """How many are to be sent again, and why."""
        changes = [_change(proposal) for proposal in taken]
        try:
            self._lease().check()
            results = await self._ask(changes)
        except (ClientError, ProtocolError, StoreConnectionError, SessionExpiredError) as problem:
            for proposal in taken:
                self._proposals.unanswered(proposal)
            return len(taken), problem
        answers = {result.partition: result for result in results}
        again = 0
        reason: object = None
        time_slice = TimeSlice()
        for proposal, change in zip(taken, changes, strict=True):
            # Each proposal knows whether it counts still.
            await time_slice.yield_if_over()
            result = answers.get(change.partition)
            if result is not None and result.info is not None:
                self._proposals.stored(proposal, result.info)
            elif result is None or result.error is None:
                self._proposals.unanswered(proposal)
                again, reason = again + 1, "the controller's answer says nothing of them"
            elif self._proposals.refused(proposal, result.error, self._image().partition(change.partition)):
                again, reason = again + 1, result.error
        return (again, reason) if again else None

    # When to look who is in sync

    def job(self, lag_s: float) -> Job:
        return Job("isr-expiration", lambda: lag_s / 2, lag_s / 2, self._check_all)

    def _check_all(self) -> Iterator[None]:
        for number, partition in enumerate(list(self._registry.partitions()), 1):
            partition.check_isr()
            if number % _AT_A_TIME == 0:
                yield None

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """A broker that came may be in sync, one that went holds nothing up any more."""
        if delta.brokers is None:
            return
        time_slice = TimeSlice()
        for partition in list(self._registry.partitions()):
            partition.check_isr()
            await time_slice.yield_if_over()


def _change(proposal: IsrProposal) -> PartitionChange:
    return PartitionChange(
        TopicPartition(proposal.partition.topic, proposal.partition.index),
        LeaderEpoch(proposal.leader_epoch),
        tuple((BrokerId(each), epoch) for each, epoch in proposal.isr),
        proposal.partition_epoch,
    )
