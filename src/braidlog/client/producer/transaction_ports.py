"""What transactions use of the rest of a producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Worker(Protocol):
    """Of the engine."""

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None: ...


class SentBatch(Protocol):
    """Of a batch."""

    topic: str
    partition: int

    @property
    def base_sequence(self) -> int:
        """-1 for one that was never sent."""
        ...


class Records(Protocol):
    """Of the accumulator."""

    def refuse(self, error: Exception | None) -> None: ...
    def begin_epoch(self) -> None: ...
    def abort_unsent(self, error: Exception) -> None: ...
    def fail_all(self, error: Exception) -> None: ...
    async def drained(self) -> None: ...


class OwnIdentity(Protocol):
    """Of its id, epoch and sequences."""

    def adopt(self, producer_id: int, epoch: int) -> None: ...
