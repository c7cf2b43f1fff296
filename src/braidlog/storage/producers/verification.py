"""Who was asked about before a transaction's first batch may enter a partition (KIP-890; hot: compiled by mypyc).

    begin → the coordinator is asked → still held? → append, which ends it
                     meanwhile a marker, or another first batch: no longer held, the append is refused

So what was verified for one transaction can neither begin a hanging one after its end nor slip into the next.
"""

from __future__ import annotations

from braidlog.core.protocol_errors import OutOfOrderSequenceNumberError
from braidlog.wire.records.batch import BatchHeader


class VerificationGuard:
    """One producer's question to the coordinator; all batches that wait for the answer share it."""

    __slots__ = ("began_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, began_ms: int) -> None:
        self.epoch = epoch
        # Of the batches that asked: none that comes after it may be the transaction's first.
        self.lowest_sequence = sequence
        self.began_ms = began_ms

    def join(self, epoch: int, sequence: int) -> None:
        """Another batch of the producer waits for the same answer."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


class VerificationGuards:
    """The open questions of one partition, by producer id."""

    def __init__(self, partition: str) -> None:
        self._partition = partition
        self._open: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> VerificationGuard:
        verification = self._open.get(producer_id)
        if verification is None:
            verification = self._open[producer_id] = VerificationGuard(epoch, sequence, now_ms)
        else:
            verification.join(epoch, sequence)
        return verification

    def holds(self, producer_id: int, verification: VerificationGuard) -> bool:
        """Whether nothing of the producer's transactions happened here since `begin` gave it out."""
        return self._open.get(producer_id) is verification

    def end(self, producer_id: int) -> None:
        """A batch of a transaction, or its marker, is in the log."""
        if self._open:
            self._open.pop(producer_id, None)

    def check_order(self, header: BatchHeader) -> None:
        """A batch must not overtake an earlier one of its producer that still waits for the answer."""
        verification = self._open.get(header.producer_id)
        if verification is not None and header.base_sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceNumberError(
                f"out of order sequence number for producer {header.producer_id} at offset {header.base_offset} in "
                f"{self._partition}: {header.base_sequence} (incoming sequence number), "
                f"{verification.lowest_sequence} (earliest seen sequence)"
            )

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, verification in list(self._open.items()):
            if now_ms - verification.began_ms >= expiration_ms:
                del self._open[producer_id]

    def clear(self) -> None:
        self._open.clear()
