"""What a pass must know of the segments it reads besides their records: weights, dates, aborted transactions."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from braidlog.storage.cleaner.policy import SourceSegment
from braidlog.storage.cleaner.transactions import AbortedTransaction
from braidlog.storage.files import Files

# version: 2 | producer id: 8 | first offset: 8 | last offset: 8 | last stable offset: 8
_TRANSACTION_ENTRY: Final = Struct(">hqqqq")


def weigh(files: Files, directory: str, base_offset: int, size: int) -> SourceSegment:
    stem = f"{directory}/{base_offset:020d}"
    return SourceSegment(
        base_offset,
        size,
        _size(files, stem + ".index"),
        _size(files, stem + ".timeindex"),
        files.modified_ms(stem + ".log"),
    )


def read_aborted(files: Files, directory: str, base_offsets: Sequence[int]) -> list[AbortedTransaction]:
    """All entries of the segments' transaction indexes; most segments have no such file."""
    transactions: list[AbortedTransaction] = []
    for base_offset in base_offsets:
        path = f"{directory}/{base_offset:020d}.txnindex"
        if not files.exists(path):
            continue
        data = files.read_bytes(path)
        whole = len(data) - len(data) % _TRANSACTION_ENTRY.size
        for _, producer_id, first, last, stable in _TRANSACTION_ENTRY.iter_unpack(data[:whole]):
            transactions.append(AbortedTransaction(first, producer_id, last, stable))
    return transactions


def _size(files: Files, path: str) -> int:
    return files.size(path) if files.exists(path) else 0
