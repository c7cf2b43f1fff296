"""Requests that appended, and what each waits for: that it is written here, and with acks=all that it is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from braidlog.core.protocol_errors import NotEnoughReplicasAfterAppendError, ProtocolError

if TYPE_CHECKING:
    from braidlog.replication.partition import Partition


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingAck:
    """Appends of one request, each of which must be written, and perhaps committed, before it is answered."""

    def __init__(self) -> None:
        # The request itself holds one until everything of it is staged.
        self.outstanding = 1
        self.failures: dict[tuple[str, int], ProtocolError] = {}
        # Appends that must reach the other replicas; None where there are none to wait for.
        self.waits: list[CommitWait] | None = None

    def release(self) -> None:
        self.outstanding -= 1
        if self.outstanding == 0:
            self.on_durable()

    def fail(self, topic: str, index: int, error: ProtocolError) -> None:
        """What failed first is what the peer hears."""
        if (topic, index) not in self.failures:
            self.failures[(topic, index)] = error

    def on_durable(self) -> None:
        raise NotImplementedError

    def on_failure(self) -> None:
        """Answering failed, a bug: the peer that waits for the answer must not wait for ever."""


class AppendAck(PendingAck):
    """One append and its callback: called once, with None when it is committed. The caller never releases it."""

    def __init__(self, callback: Callable[[ProtocolError | None], None]) -> None:
        super().__init__()
        self.outstanding = 0
        self._callback = callback

    def on_durable(self) -> None:
        error: ProtocolError | None = None
        for failure in self.failures.values():
            # Committed it is, though fewer replicas than wanted would keep what comes next.
            if not isinstance(failure, NotEnoughReplicasAfterAppendError):
                error = failure
        self._callback(error)


class CommitWait:
    """An append with acks=all that ends at `offset`: it is over once the high watermark is there."""

    __slots__ = ("ack", "done", "offset", "partition")

    def __init__(self, partition: Partition, offset: int, ack: PendingAck) -> None:
        self.partition = partition
        self.offset = offset
        self.ack = ack
        self.done = False

    def finish(self, error: ProtocolError | None) -> None:
        if self.done:
            return
        self.done = True
        if error is not None:
            self.ack.fail(self.partition.topic, self.partition.index, error)
        self.ack.release()
