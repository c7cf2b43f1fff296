"""Reads a closed segment from front to end in chunks of whole batches."""

from __future__ import annotations

from braidlog.core.errors import CorruptLogError
from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.storage.files import Files
from braidlog.wire.records.batch import LENGTH_AT, LOG_OVERHEAD, BatchHeader, iterate_headers


class SegmentReader:
    """`buffer` and the headers of `next_chunk` belong together until the next call."""

    def __init__(self, files: Files, directory: str, base_offset: int, size: int, chunk_bytes: int) -> None:
        self.buffer: bytes = b""
        # Bytes of whole batches in the current chunk.
        self.chunk_bytes: int = 0
        # Where in the file the current chunk starts.
        self.chunk_start: int = 0
        self._path = f"{directory}/{base_offset:020d}.log"
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
