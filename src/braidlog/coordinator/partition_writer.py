"""What the runtime needs from the partitions of its internal topic; the broker provides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from braidlog.core.protocol_errors import ProtocolError

# Called once: None when the append is committed, else why it never will be.
AppendCallback = Callable[[ProtocolError | None], None]


class Chunk(NamedTuple):
    """Some whole batches of a partition; `data` is empty at its end."""

    data: bytes
    next_offset: int


class PartitionWriter(Protocol):
    """The partitions of one internal topic that this broker leads."""

    def append(self, partition: int, batch: bytes, done: AppendCallback) -> int:
        """Stage a batch and return its first offset; raises ProtocolError, and then nothing was staged.

        Batches of a partition are committed in their order. After a failure none that was staged later is committed.
        """
        ...

    def bounds(self, partition: int) -> tuple[int, int]:
        """Log start and log end offset; raises ProtocolError where the log is not to be had."""
        ...

    async def read(self, partition: int, offset: int) -> Chunk:
        """What comes at and after `offset`, as much as is read at a time; raises ProtocolError or StorageFault."""
        ...

    def where(self, partition: int, offset: int) -> str:
        """The file that holds the offset, for a message to a person."""
        ...
