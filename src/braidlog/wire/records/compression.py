"""The four codecs in the framings that Kafka's clients use, with a bound on what decompression may produce."""

from __future__ import annotations

from typing import Final

from braidlog.wire.records.batch import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD

# What one batch may decompress to when the caller has no opinion: far above any real batch, far below memory.
DEFAULT_LIMIT: Final = 128 * 1024 * 1024

CODEC_NAMES: Final = {
    CODEC_NONE: "none",
    CODEC_GZIP: "gzip",
    CODEC_SNAPPY: "snappy",
    CODEC_LZ4: "lz4",
    CODEC_ZSTD: "zstd",
}


def codec_named(name: str) -> int:
    """The codec of a `compression.type` value (none, gzip, snappy, lz4, zstd, and `uncompressed`)."""
    raise NotImplementedError


def compress(codec: int, data: bytes, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data` in the codec's framing; `magic` 0 gets the header checksum that old Kafka clients expect of lz4."""
    raise NotImplementedError


def decompress(
    codec: int, buffer: bytes, start: int, end: int, *, limit: int = DEFAULT_LIMIT, magic: int = 2
) -> bytes:
    """What `buffer[start:end]` holds; raises CorruptMessageError when it is broken or would exceed `limit` bytes."""
    raise NotImplementedError
