"""Which batches of a log belong to aborted transactions, and when their markers have served their purpose."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class AbortedTransaction:
    """An entry of the transaction index."""

    first_offset: int
    producer_id: int
    last_offset: int
    last_stable_offset: int


class TransactionTracker:
    """Walks a log in offset order, knowing from its transaction index what was aborted.

    Data of an aborted transaction goes. A marker is superfluous once no data of its transaction is left before it; then
    it goes too, after the same horizon as a tombstone, so that a reader in the middle of the log still meets it.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = list(aborted)
        heapq.heapify(self._coming)
        # Producers whose current transaction ends in an abort, with whether data of it was met.
        self._aborting: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        self._committing: set[int] = set()
        # Aborted transactions whose data is still there: they belong into the compacted segment's index.
        self.kept: list[AbortedTransaction] = []

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
            self.kept.append(transaction)
            return False
        return True

    def take_kept(self) -> list[AbortedTransaction]:
        kept, self.kept = self.kept, []
        return kept

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = heapq.heappop(self._coming)
            self._aborting.setdefault(transaction.producer_id, transaction)
