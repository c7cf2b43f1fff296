"""What a program may want to do when its partitions come and go."""

from __future__ import annotations

from braidlog.core.types import TopicPartition


class RebalanceListener:
    """Called inside `poll`, `unsubscribe` and `close`, in the thread that called those.

    It gets the partitions that change: with a cooperative assignor only those that come or go, else all of them.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """These are ours now, before any of their records is returned; `seek` works here."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """These are about to go to others; `commit` still works here."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """These already belong to others: nothing can be committed any more."""
        self.on_partitions_revoked(partitions)
