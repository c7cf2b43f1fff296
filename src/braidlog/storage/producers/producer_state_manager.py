"""What the log knows of each producer: which sequences it has, and which transaction is open (hot: compiled by mypyc).

Rules are those of Kafka 3.9:
- a producer's last five batches are remembered; one that comes again is a duplicate and gets its old offsets;
- an older epoch is fenced, a newer epoch starts at sequence 0, within an epoch sequences follow one another;
- of a producer that is not known any sequence is accepted: its state may have expired or been deleted;
- data of a leader is taken as it is (the leader has checked it).

Entries are never changed, only replaced, so a staged append is undone by putting the old ones back.
"""

from __future__ import annotations

from typing import Final

from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from braidlog.storage.index.transaction_index import AbortedTxn
from braidlog.storage.producers.verification import VerificationGuard, VerificationGuards
from braidlog.wire.records.batch import NO_SEQUENCE, BatchHeader
from braidlog.wire.records.control_records import EndTxnMarker
from braidlog.wire.records.validation import ORIGIN_CLIENT, ORIGIN_REPLICATION

BATCHES_KEPT: Final = 5
NO_OFFSET: Final = -1
_MAX_SEQUENCE: Final = 0x7FFFFFFF


class BatchMetadata:
    """One batch that a producer wrote."""

    __slots__ = ("last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + _MAX_SEQUENCE + 1


class ProducerStateEntry:
    """The state of one producer id; never changed once it is in the map."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        batches: list[BatchMetadata],
        last_timestamp: int,
        coordinator_epoch: int,
        txn_first_offset: int,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        # Oldest first, at most five, all of this epoch.
        self.batches = batches
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        # Of the open transaction; -1 while there is none.
        self.txn_first_offset = txn_first_offset

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0


class CompletedTxn:
    """A transaction that its marker at `last_offset` has ended."""

    __slots__ = ("aborted", "first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int, last_offset: int, aborted: bool) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.aborted = aborted


class _Undo:
    """How one producer stood before a staged batch."""

    __slots__ = ("entry", "ongoing", "producer_id", "unreplicated")

    def __init__(
        self,
        producer_id: int,
        entry: ProducerStateEntry | None,
        ongoing: dict[int, int] | None,
        unreplicated: dict[int, int] | None,
    ) -> None:
        self.producer_id = producer_id
        self.entry = entry
        self.ongoing = ongoing
        self.unreplicated = unreplicated


class ProducerStateManager:
    """All producers of one partition, up to `end_offset`."""

    def __init__(self, partition: str, expiration_ms: int) -> None:
        self.partition = partition
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        # Open transactions: first offset → producer id, in offset order.
        self.ongoing: dict[int, int] = {}
        # Ended ones whose marker is not below the high watermark yet: first offset → the marker's offset.
        self.unreplicated: dict[int, int] = {}
        # Transactions that have nothing here yet and wait for the coordinator's word.
        self.verifications = VerificationGuards(partition)
        # Batches below it are accounted for.
        self.end_offset = 0
        self._undo: list[_Undo] = []

    def clear(self, end_offset: int) -> None:
        self.producers = {}
        self.ongoing = {}
        self.unreplicated = {}
        self.verifications.clear()
        self.end_offset = end_offset
        self._undo = []

    # --- append

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch as it was written before, if it is among the producer's last five."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def append(self, header: BatchHeader, marker: EndTxnMarker | None, origin: int) -> CompletedTxn | None:
        """Check and account for a batch with a producer id; a transaction that it ends is for `complete`.

        Raises OutOfOrderSequenceNumberError, InvalidProducerEpochError, InvalidTxnStateError or
        TransactionCoordinatorFencedError, and then nothing has changed.
        """
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if header.is_control:
            return self._append_marker(header, marker, entry, origin) if marker is not None else None
        epoch = header.producer_epoch
        if entry is not None and epoch < entry.epoch:
            self._fence(header, entry, origin)
        if origin == ORIGIN_CLIENT:
            self.verifications.check_order(header)
        if entry is None:
            updated = ProducerStateEntry(producer_id, epoch, [], -1, -1, NO_OFFSET)
            kept: list[BatchMetadata] = []
        else:
            if origin == ORIGIN_CLIENT:
                self._check_sequence(header, entry)
            updated = ProducerStateEntry(producer_id, epoch, [], -1, entry.coordinator_epoch, entry.txn_first_offset)
            kept = entry.batches[-(BATCHES_KEPT - 1) :] if entry.epoch == epoch else []
        updated.last_timestamp = header.max_timestamp
        updated.batches = [
            *kept,
            BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp),
        ]
        transactional = header.is_transactional
        if updated.txn_first_offset >= 0 and not transactional:
            raise InvalidTxnStateError(
                f"producer {producer_id} has an open transaction in {self.partition} and must end it before it "
                f"writes outside of it (offset {header.base_offset})"
            )
        if updated.txn_first_offset < 0 and transactional:
            updated.txn_first_offset = header.base_offset
            self._undo.append(_Undo(producer_id, entry, dict(self.ongoing), None))
            self.ongoing[header.base_offset] = producer_id
        else:
            self._undo.append(_Undo(producer_id, entry, None, None))
        self.producers[producer_id] = updated
        if transactional:
            self.verifications.end(producer_id)
        return None

    def _append_marker(
        self, header: BatchHeader, marker: EndTxnMarker, entry: ProducerStateEntry | None, origin: int
    ) -> CompletedTxn | None:
        producer_id = header.producer_id
        epoch = header.producer_epoch
        completed: CompletedTxn | None = None
        batches: list[BatchMetadata] = []
        if entry is not None:
            if epoch < entry.epoch:
                self._fence(header, entry, origin)
            if marker.coordinator_epoch < entry.coordinator_epoch and origin != ORIGIN_REPLICATION:
                raise TransactionCoordinatorFencedError(
                    f"marker of coordinator epoch {marker.coordinator_epoch} for producer {producer_id} in "
                    f"{self.partition}, which has seen epoch {entry.coordinator_epoch}"
                )
            if entry.txn_first_offset >= 0:
                completed = CompletedTxn(producer_id, entry.txn_first_offset, header.base_offset, not marker.commits)
            if entry.epoch == epoch:
                batches = entry.batches
        self._undo.append(_Undo(producer_id, entry, None, None))
        self.verifications.end(producer_id)
        self.producers[producer_id] = ProducerStateEntry(
            producer_id, epoch, batches, header.max_timestamp, marker.coordinator_epoch, NO_OFFSET
        )
        return completed

    def _fence(self, header: BatchHeader, entry: ProducerStateEntry, origin: int) -> None:
        if origin != ORIGIN_REPLICATION:
            raise InvalidProducerEpochError(
                f"epoch {header.producer_epoch} of producer {header.producer_id} at offset {header.base_offset} in "
                f"{self.partition} is smaller than the last seen epoch {entry.epoch}"
            )

    def _check_sequence(self, header: BatchHeader, entry: ProducerStateEntry) -> None:
        first = header.base_sequence
        if header.producer_epoch != entry.epoch:
            if first != 0:
                raise OutOfOrderSequenceNumberError(
                    f"invalid sequence number for new epoch of producer {header.producer_id} at offset "
                    f"{header.base_offset} in {self.partition}: {header.producer_epoch} (request epoch), "
                    f"{first} (sequence number), {entry.epoch} (current epoch)"
                )
            return
        last = entry.last_sequence
        if first != last + 1 and not (first == 0 and last == _MAX_SEQUENCE):
            raise OutOfOrderSequenceNumberError(
                f"out of order sequence number for producer {header.producer_id} at offset {header.base_offset} in "
                f"{self.partition}: {first} (incoming sequence number), {last} (current end sequence number)"
            )

    # --- staging

    def mark(self) -> int:
        """A point to `roll_back` to."""
        return len(self._undo)

    def on_staged_written(self) -> None:
        """What was staged is written."""
        self._undo.clear()

    def roll_back(self, mark: int = 0) -> None:
        while len(self._undo) > mark:
            undo = self._undo.pop()
            if undo.entry is None:
                self.producers.pop(undo.producer_id, None)
            else:
                self.producers[undo.producer_id] = undo.entry
            if undo.ongoing is not None:
                self.ongoing = undo.ongoing
            if undo.unreplicated is not None:
                self.unreplicated = undo.unreplicated

    # --- transactions

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.txn_first_offset >= 0

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> VerificationGuard | None:
        """What to hold while the coordinator is asked; None for an open transaction: the coordinator knows of it."""
        if self.has_open_transaction(producer_id, epoch):
            return None
        return self.verifications.begin(producer_id, epoch, sequence, now_ms)

    def may_write(self, producer_id: int, epoch: int, verification: VerificationGuard | None) -> bool:
        """Whether a transactional batch is welcome, its verification (if it needed one) having been answered."""
        if verification is not None and self.verifications.holds(producer_id, verification):
            return True
        return self.has_open_transaction(producer_id, epoch)

    def complete(self, completed: CompletedTxn) -> AbortedTxn | None:
        """End a transaction; what the transaction index is to hold of it, if it was aborted.

        It stays unstable until the high watermark has passed its marker.
        """
        aborted: AbortedTxn | None = None
        if completed.aborted:
            aborted = AbortedTxn(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                self._stable_offset_after(completed),
            )
        entry = self.producers.get(completed.producer_id)
        self._undo.append(_Undo(completed.producer_id, entry, dict(self.ongoing), dict(self.unreplicated)))
        self.ongoing.pop(completed.first_offset, None)
        self.unreplicated[completed.first_offset] = completed.last_offset
        return aborted

    def _stable_offset_after(self, completed: CompletedTxn) -> int:
        """The last stable offset once `completed` is over and replicated."""
        for first_offset, producer_id in self.ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def first_unstable_offset(self) -> int:
        """First offset of the earliest transaction that is open or whose end is not replicated; -1 for none."""
        first = NO_OFFSET
        for offset in self.ongoing:
            first = offset
            break
        if self.unreplicated:
            earliest = min(self.unreplicated)
            if first < 0 or earliest < first:
                first = earliest
        return first

    def has_late_transaction(self, now_ms: int, longest_ms: int) -> bool:
        """Whether the earliest open transaction has had no batch for longer than `longest_ms`: it is hanging."""
        for producer_id in self.ongoing.values():
            entry = self.producers.get(producer_id)
            return entry is not None and entry.last_timestamp >= 0 and now_ms - entry.last_timestamp > longest_ms
        return False

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker lies below are stable now."""
        if self.unreplicated:
            replicated = [first for first, last in self.unreplicated.items() if last < high_watermark]
            for first in replicated:
                del self.unreplicated[first]

    def last_records(self) -> list[tuple[int, int | None, int]]:
        """(producer id, last offset of its data or None, epoch) of each: records that compaction must keep."""
        return [
            (entry.producer_id, entry.last_offset if entry.batches else None, entry.epoch)
            for entry in self.producers.values()
        ]

    # --- expiry

    def is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that were idle for producer.id.expiration.ms; returns how many."""
        expired = [entry.producer_id for entry in self.producers.values() if self.is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        self.verifications.remove_expired(now_ms, self.expiration_ms)
        return len(expired)

    def restore(self, entry: ProducerStateEntry) -> None:
        """Take over an entry of a snapshot."""
        self.producers[entry.producer_id] = entry
        if entry.txn_first_offset >= 0:
            self.ongoing[entry.txn_first_offset] = entry.producer_id

    def sort_transactions(self) -> None:
        """After `restore`: open transactions in offset order again."""
        self.ongoing = dict(sorted(self.ongoing.items()))
