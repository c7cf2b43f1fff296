"""Which batches of a log belong to aborted transactions, and when their markers have served their purpose."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.storage.index.transaction_index import AbortedTxn


class CleanedTransactionMetadata:
    """Walks a log in offset order, knowing from its transaction index what was aborted.

    Data of an aborted transaction goes. A marker is superfluous once no data of its transaction is left before it; then
    it goes too, after the same horizon as a tombstone, so that a reader in the middle of the log still meets it.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        # Newest first, so that the next one to begin is at the end.
        self._coming = sorted(aborted, key=_first_offset, reverse=True)
        # Producers whose current transaction ends in an abort, and those of them whose data was met.
        self._aborting: dict[int, AbortedTxn] = {}
        self._met: set[int] = set()
        self._committing: set[int] = set()
        # Aborted transactions whose data was there until this pass: the compacted segment's index keeps them, because
        # an empty batch may stay and its marker does.
        self._kept: list[AbortedTxn] = []

    def data_is_aborted(self, producer_id: int, is_transactional: bool, last_offset: int) -> bool:
        """For every data batch; true if its records must not survive."""
        self._advance(last_offset)
        if not is_transactional:
            return False
        if producer_id in self._aborting:
            self._met.add(producer_id)
            return True
        self._committing.add(producer_id)
        return False

    def marker_is_superfluous(self, producer_id: int, commits: bool | None, last_offset: int) -> bool:
        """For every control batch; `commits` is none for an emptied batch, which has nothing left to say."""
        self._advance(last_offset)
        if commits is None:
            return True
        if commits:
            present = producer_id in self._committing
            self._committing.discard(producer_id)
            return not present
        transaction = self._aborting.pop(producer_id, None)
        if transaction is not None and producer_id in self._met:
            self._met.discard(producer_id)
            self._kept.append(transaction)
            return False
        return True

    def take_kept(self) -> list[AbortedTxn]:
        kept, self._kept = self._kept, []
        return kept

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborting.setdefault(transaction.producer_id, transaction)


def _first_offset(transaction: AbortedTxn) -> int:
    return transaction.first_offset
