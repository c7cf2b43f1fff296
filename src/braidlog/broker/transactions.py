"""Between the transaction coordinator and the partitions: who may write, and the markers that end a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from braidlog.coordinator.txn.actions import SendMarkers
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition

Checked = Callable[[dict[TopicPartition, ProtocolError | None]], None]


class MarkerSink(Protocol):
    """How markers get into partitions (broker/markers.py); `done` is told of each partition once, None if committed."""

    def write(
        self,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        done: Callable[[TopicPartition, ProtocolError | None], None],
    ) -> None: ...


class TransactionDesk:
    def check_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        add: bool,
        done: Checked,
    ) -> None:
        """Whether the producer may write to the partitions now (KIP-890); with `add` they join its transaction.

        `done` is called exactly once, at once where nothing needs to be written; None means yes.
        """
        raise NotImplementedError

    def send_markers(self, action: SendMarkers) -> None:
        """Write the markers, again and again where that can help, then tell the shard."""
        raise NotImplementedError
