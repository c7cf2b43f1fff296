"""What transactions use of the rest of a producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Worker(Protocol):
    """What a transaction needs of the engine."""

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None: ...


class SentBatch(Protocol):
    """What a transaction needs of a batch."""

    topic: str
    partition: int

    @property
    def base_sequence(self) -> int:
        """-1 for one that was never sent."""
        ...


class AcceptedRecords(Protocol):
    """What a transaction needs of the accumulator."""

    def refuse(self, error: Exception | None) -> None: ...
    def begin_transaction(self) -> None: ...
    def abort_unsent(self, error: Exception) -> None: ...
    def fail_all(self, error: Exception) -> None: ...
    async def drained(self) -> None: ...


class ProducerIdHolder(Protocol):
    """What a transaction needs of the producer id, its epoch and its sequences."""

    def set_producer_id_and_epoch(self, producer_id: int, epoch: int) -> None: ...
