"""The segments that a pass reads: their batches, sizes, dates and aborted transactions (hot: compiled by mypyc)."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.core.errors import CorruptLogError
from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.storage.cleaner.policy import SourceSegment
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn, TransactionIndex
from braidlog.storage.log.segment_file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from braidlog.wire.records.batch import LENGTH_AT, LOG_OVERHEAD, BatchHeader, iterate_headers


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


class SegmentReader:
    """Reads a closed segment from front to end, in chunks of whole batches.

    `buffer` and the headers of `next_chunk` belong together until the next call.
    """

    def __init__(self, files: Files, directory: str, base_offset: int, size: int, chunk_bytes: int) -> None:
        self.buffer: bytes = b""
        # Bytes of whole batches in the current chunk.
        self.chunk_bytes: int = 0
        # Where in the file the current chunk starts.
        self.chunk_start: int = 0
        self._path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
        self._size = size
        self._chunk = max(chunk_bytes, LOG_OVERHEAD)
        self._position: int = 0
        self._file = files.open_read(self._path)

    def next_chunk(self) -> list[BatchHeader] | None:
        """The next whole batches, at least one; none at the end. A batch larger than the chunk is read whole."""
        left = self._size - self._position
        if left <= 0:
            return None
        wanted = min(self._chunk, left)
        while True:
            self.buffer = self._file.pread(wanted, self._position)
            try:
                headers = iterate_headers(self.buffer, 0, len(self.buffer))
            except CorruptMessageError as problem:
                raise CorruptLogError(f"{self._path} after position {self._position}: {problem.message}") from None
            if headers:
                break
            wanted = self._size_of_first()
            if wanted > left or wanted <= len(self.buffer):
                raise CorruptLogError(f"{self._path}: no whole batch at position {self._position} of {self._size}")
        self.chunk_start = self._position
        self.chunk_bytes = headers[-1].position + headers[-1].size
        self._position += self.chunk_bytes
        return headers

    def close(self) -> None:
        self._file.close()

    def _size_of_first(self) -> int:
        if len(self.buffer) < LOG_OVERHEAD:
            raise CorruptLogError(f"{self._path}: {len(self.buffer)} stray bytes at position {self._position}")
        return LOG_OVERHEAD + int.from_bytes(self.buffer[LENGTH_AT:LOG_OVERHEAD], "big", signed=True)
