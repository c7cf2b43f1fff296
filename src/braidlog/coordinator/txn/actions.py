"""What a transaction asks the broker to do once its records are committed."""

from __future__ import annotations

from braidlog.coordinator.effects import Action
from braidlog.core.types import TopicPartition


class SendMarkers(Action):
    """Tell the partitions of a transaction how it ended; the shard wants to hear of each (`markers_written`).

    The epoch is the one that the markers carry: in transaction version 2 one above that of the data (KIP-890). The
    object itself names the attempt: whatever comes back for an earlier one no longer counts.
    """

    __slots__ = (
        "attempt",
        "commits",
        "coordinator_epoch",
        "partitions",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        partitions: list[TopicPartition],
        coordinator_epoch: int,
        attempt: int = 0,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.commits = commits
        self.partitions = partitions
        self.coordinator_epoch = coordinator_epoch
        # How often this was tried before, for whoever paces the next try.
        self.attempt = attempt

    def __repr__(self) -> str:
        outcome = "commit" if self.commits else "abort"
        return f"<SendMarkers {outcome} {self.transactional_id} {self.producer_id}/{self.producer_epoch}>"
