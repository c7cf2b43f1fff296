"""What a pass must know of the segments it reads besides their records: weights, dates, aborted transactions."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.storage.cleaner.policy import SourceSegment
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn, TransactionIndex
from braidlog.storage.log.log_segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)


def measure_segment(files: Files, directory: str, base_offset: int, size: int) -> SourceSegment:
    return SourceSegment(
        base_offset,
        size,
        _size(files, f"{directory}/{file_name(base_offset, INDEX_SUFFIX)}"),
        _size(files, f"{directory}/{file_name(base_offset, TIME_INDEX_SUFFIX)}"),
        files.modified_ms(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"),
    )


def read_aborted(files: Files, handles: HandlePool, directory: str, base_offsets: Sequence[int]) -> list[AbortedTxn]:
    """All entries of the segments' transaction indexes; most segments have no such file."""
    transactions: list[AbortedTxn] = []
    for base_offset in base_offsets:
        index = TransactionIndex(files, handles, f"{directory}/{file_name(base_offset, TXN_INDEX_SUFFIX)}")
        transactions += index.entries()
    return transactions


def _size(files: Files, path: str) -> int:
    return files.size(path) if files.exists(path) else 0
