"""The four codecs in the framings that Kafka's clients use, with a bound on what decompression may yield.

Snappy, as Java and librdkafka write it (the "xerial" framing; on reading raw snappy is taken as well):

     +------------------------+---------+-----------------+----------------------+-----------+-----
     | 82 "SNAPPY" 00         | version | lowest reader's | block length, 4      | raw       | next
     |                        | 4 bytes | version 4 bytes | bytes, big-endian    | snappy    | block
     +------------------------+---------+-----------------+----------------------+-----------+-----

LZ4, the frame format with independent blocks of 64 KiB and no checksums but the header's (all little-endian):

     +-------------+-----+----+----+----------------------------+-------+-----+-------------+
     | 04 22 4d 18 | FLG | BD | HC | block length, 4 bytes, top | block | ... | 00 00 00 00 |
     |             | 60  | 40 |    | bit set when not compressed|       |     |             |
     +-------------+-----+----+----+----------------------------+-------+-----+-------------+
     HC = second byte of xxh32(FLG BD ...); in message format 0 Kafka took the four magic bytes in, which was
     wrong and became the rule: there we write that one, and on reading accept either.

Gzip is the standard library's; the others come from cramjam, which is imported when first needed.
"""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Final

from braidlog.core.protocol_errors import CorruptMessageError, UnsupportedCompressionTypeError
from braidlog.wire.records.batch import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD

# What one batch may decompress to when the caller has no opinion: far above any real batch, below memory.
DEFAULT_LIMIT: Final = 128 * 1024 * 1024

CODEC_NAMES: Final = {
    CODEC_NONE: "none",
    CODEC_GZIP: "gzip",
    CODEC_SNAPPY: "snappy",
    CODEC_LZ4: "lz4",
    CODEC_ZSTD: "zstd",
}

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR: Final = b"\x60\x40"
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
# Kafka compresses "fast" at its default level and with the slow, denser matcher at any other.
_LZ4_DEFAULT_LEVEL: Final = 9
_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK: Final = 128 * 1024
# Deflate's own bound: 258 bytes for two bits.
_MOST_GZIP_RATIO: Final = 1032
_GZIP_STEP: Final = 4 * 1024 * 1024
# A fixed output is allocated, and written, whole: only worth it where the true size is not known before.
_FIXED_OUTPUT_STEP: Final = 4 * 1024 * 1024

_cramjam: ModuleType | None = None


def codec_named(name: str) -> int:
    """The codec of a `compression.type` value: none (or uncompressed), gzip, snappy, lz4, zstd."""
    if name == "uncompressed":
        return CODEC_NONE
    for codec, known in CODEC_NAMES.items():
        if known == name:
            return codec
    raise UnsupportedCompressionTypeError(f"unknown compression type {name!r}; known are none, gzip, snappy, lz4, zstd")


def codec_name(codec: int) -> str:
    return CODEC_NAMES.get(codec, f"codec {codec}")


def compress(codec: int, data: bytes, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data` in the codec's framing; with `magic` 0, lz4 gets the header checksum that format 0 wants."""
    if codec == CODEC_NONE:
        return data
    if codec == CODEC_GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == CODEC_SNAPPY:
        return _compress_snappy(data)
    if codec == CODEC_LZ4:
        return _compress_lz4(data, level, magic)
    if codec == CODEC_ZSTD:
        return bytes(_library().zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))
    raise UnsupportedCompressionTypeError(f"unknown compression codec {codec}")


def decompress(codec: int, buffer: bytes, start: int, end: int, *, limit: int = DEFAULT_LIMIT, magic: int = 2) -> bytes:
    """What `buffer[start:end]` holds.

    Raises CorruptMessageError when it is broken or would exceed `limit` bytes.
    """
    if codec == CODEC_NONE:
        return buffer[start:end]
    if codec == CODEC_GZIP:
        return _decompress_gzip(memoryview(buffer)[start:end], limit)
    if codec > CODEC_ZSTD or codec < CODEC_NONE:
        raise CorruptMessageError(f"unknown compression codec {codec}")
    library = _library()
    try:
        if codec == CODEC_SNAPPY:
            return _decompress_snappy(buffer, start, end, limit)
        if codec == CODEC_LZ4:
            return _decompress_lz4(buffer, start, end, limit, magic)
        return _decompress_zstd(buffer, start, end, limit)
    except library.DecompressionError as problem:
        raise CorruptMessageError(f"{codec_name(codec)} data is broken: {problem}") from None


def most_decompressed(codec: int, buffer: bytes, start: int, end: int, limit: int) -> int:
    """The most that `buffer[start:end]` can decompress to, found without decompressing; `limit` or more is enough.

    Raises CorruptMessageError where the framing is broken.
    """
    if codec == CODEC_GZIP:
        return _MOST_GZIP_RATIO * (end - start)
    if codec == CODEC_SNAPPY:
        return _most_snappy(buffer, start, end)
    if codec == CODEC_LZ4:
        return _most_lz4(buffer, start, end)
    if codec == CODEC_ZSTD:
        return _most_zstd(buffer, start, end, limit)
    return end - start


def _library() -> ModuleType:
    global _cramjam
    if _cramjam is None:
        import cramjam

        _cramjam = cramjam
    return _cramjam


def _too_large(codec: int, limit: int) -> CorruptMessageError:
    return CorruptMessageError(f"{codec_name(codec)} data decompresses to more than the {limit} bytes allowed")


def _decompress_gzip(data: memoryview, limit: int) -> bytes:
    """One or several gzip members, as Java's reader takes them."""
    pieces: list[bytes] = []
    room = limit
    rest: bytes | memoryview = data
    while True:
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            try:
                # In steps, since zlib joins the pieces of one call and so takes twice its output; and one byte more
                # than allowed is asked for, so that reaching the limit and passing it differ.
                piece = unpacker.decompress(rest, min(room + 1, _GZIP_STEP))
            except zlib.error as problem:
                raise CorruptMessageError(f"gzip data is broken: {problem}") from None
            room -= len(piece)
            if room < 0:
                raise _too_large(CODEC_GZIP, limit)
            rest = unpacker.unconsumed_tail
            if not piece and not unpacker.eof:
                raise CorruptMessageError("gzip data is cut short")
            pieces.append(piece)
        rest = unpacker.unused_data
        # What follows the last member is padding to Java, unless it starts another one.
        if rest[:2] != b"\x1f\x8b":
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _compress_snappy(data: bytes) -> bytes:
    pack = _library().snappy.compress_raw
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(pack(view[start : start + _XERIAL_BLOCK]))
        pieces.append(len(block).to_bytes(4, "big"))
        pieces.append(block)
    return b"".join(pieces)


def _decompress_snappy(buffer: bytes, start: int, end: int, limit: int) -> bytes:
    snappy = _library().snappy
    view = memoryview(buffer)
    if buffer[start : start + len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        if _snappy_length(buffer, start, end) > limit:
            raise _too_large(CODEC_SNAPPY, limit)
        return bytes(snappy.decompress_raw(view[start:end]))
    at = start + len(_XERIAL_HEADER)
    if at > end:
        raise CorruptMessageError("snappy data ends inside its header")
    pieces: list[bytes] = []
    room = limit
    while at < end:
        if end - at < 4:
            raise CorruptMessageError("snappy data ends inside a block's length")
        size = int.from_bytes(buffer[at : at + 4], "big")
        at += 4
        if size > end - at:
            raise CorruptMessageError("snappy data ends inside a block")
        room -= _snappy_length(buffer, at, at + size)
        if room < 0:
            raise _too_large(CODEC_SNAPPY, limit)
        pieces.append(bytes(snappy.decompress_raw(view[at : at + size])))
        at += size
    return b"".join(pieces)


def _most_snappy(buffer: bytes, start: int, end: int) -> int:
    if buffer[start : start + len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_length(buffer, start, end)
    at = start + len(_XERIAL_HEADER)
    most = 0
    while at < end:
        if end - at < 4:
            raise CorruptMessageError("snappy data ends inside a block's length")
        size = int.from_bytes(buffer[at : at + 4], "big")
        at += 4
        most += _snappy_length(buffer, at, min(at + size, end))
        at += size
    return most


def _snappy_length(buffer: bytes, start: int, end: int) -> int:
    """What a raw snappy block says it holds: a plain varint of 32 bits at its start."""
    value = 0
    for index in range(min(5, end - start)):
        byte = buffer[start + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value
    raise CorruptMessageError("snappy data starts with an impossible length")


def _compress_lz4(data: bytes, level: int | None, magic: int) -> bytes:
    if level is None or level == _LZ4_DEFAULT_LEVEL:
        frame = _lz4_frame(data)
    else:
        # The library's block function knows no levels; its frames do, at the price of a checksum per block.
        packer = _library().lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        packer.compress(data)
        frame = bytes(packer.finish())
    if magic == 0:
        return frame[:6] + bytes([_xxh32_short(frame[:6]) >> 8 & 0xFF]) + frame[7:]
    return frame


def _lz4_frame(data: bytes) -> bytes:
    pack = _library().lz4.compress_block
    view = memoryview(data)
    pieces = [_LZ4_MAGIC, _LZ4_DESCRIPTOR, bytes([_xxh32_short(_LZ4_DESCRIPTOR) >> 8 & 0xFF])]
    for start in range(0, len(data), _LZ4_BLOCK):
        block = view[start : start + _LZ4_BLOCK]
        packed = bytes(pack(block, store_size=False))
        if len(packed) < len(block):
            pieces.append(len(packed).to_bytes(4, "little"))
            pieces.append(packed)
        else:
            pieces.append((len(block) | _LZ4_STORED).to_bytes(4, "little"))
            pieces.append(bytes(block))
    pieces.append(bytes(4))
    return b"".join(pieces)


def _decompress_lz4(buffer: bytes, start: int, end: int, limit: int, magic: int) -> bytes:
    most = _most_lz4(buffer, start, end)
    data: bytes | memoryview = memoryview(buffer)[start:end]
    if magic == 0:
        data = _with_right_header_checksum(bytes(data))
    lz4 = _library().lz4
    if most <= limit:
        return bytes(lz4.decompress(data))
    return _decompress_fixed(lz4, CODEC_LZ4, data, min(limit, 255 * len(data)), limit)


def _most_lz4(buffer: bytes, start: int, end: int) -> int:
    """The most that the blocks of a frame can decompress to, found by walking their lengths."""
    if end - start < 7:
        raise CorruptMessageError("lz4 data ends inside its header")
    if buffer[start : start + 4] != _LZ4_MAGIC:
        raise CorruptMessageError("lz4 data does not start with the frame magic")
    flags = buffer[start + 4]
    block_bytes = 1 << (8 + 2 * (buffer[start + 5] >> 4 & 7))
    at = start + 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    block_overhead = 4 if flags & 0x10 else 0
    most = 0
    while end - at >= 4:
        size = int.from_bytes(buffer[at : at + 4], "little")
        if size == 0:
            at += 4 + (4 if flags & 0x04 else 0)
            # Another frame may follow; its blocks are not walked but bounded by lz4's best ratio.
            return most + 255 * max(end - at, 0)
        if size & _LZ4_STORED:
            size &= ~_LZ4_STORED
            most += size
        else:
            most += min(block_bytes, 255 * size)
        at += 4 + size + block_overhead
    return most


def _with_right_header_checksum(frame: bytes) -> bytes:
    """The frame with the checksum that the format asks for, whatever its writer put there."""
    flags = frame[4]
    size = 2 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(frame) < 5 + size:
        raise CorruptMessageError("lz4 data ends inside its header")
    right = _xxh32_short(frame[4 : 4 + size]) >> 8 & 0xFF
    return frame[: 4 + size] + bytes([right]) + frame[5 + size :]


def _xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, all that a frame header ever has."""
    mask = 0xFFFFFFFF
    digest = (374761393 + len(data)) & mask
    at = 0
    while len(data) - at >= 4:
        digest = (digest + int.from_bytes(data[at : at + 4], "little") * 3266489917) & mask
        digest = (digest << 17 | digest >> 15) * 668265263 & mask
        at += 4
    for byte in data[at:]:
        digest = (digest + byte * 374761393) & mask
        digest = (digest << 11 | digest >> 21) * 2654435761 & mask
    digest = (digest ^ digest >> 15) * 2246822519 & mask
    digest = (digest ^ digest >> 13) * 3266489917 & mask
    return digest ^ digest >> 16


def _decompress_zstd(buffer: bytes, start: int, end: int, limit: int) -> bytes:
    zstd = _library().zstd
    data = memoryview(buffer)[start:end]
    if _most_zstd(buffer, start, end, limit) <= limit:
        return bytes(zstd.decompress(data))
    return _decompress_fixed(zstd, CODEC_ZSTD, data, limit, limit)


def _most_zstd(buffer: bytes, start: int, end: int, limit: int) -> int:
    """The most that a zstd stream's blocks can decompress to; the walk stops where that passes `limit`."""
    most = 0
    at = start
    while end - at >= 6 and most <= limit:
        magic = int.from_bytes(buffer[at : at + 4], "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:
            at += 8 + int.from_bytes(buffer[at + 4 : at + 8], "little")
            continue
        if buffer[at : at + 4] != _ZSTD_MAGIC:
            raise CorruptMessageError("zstd data does not start with the frame magic")
        descriptor = buffer[at + 4]
        single = descriptor >> 5 & 1
        content = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
        at += 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content
        last = False
        while not last and end - at >= 3 and most <= limit:
            head = int.from_bytes(buffer[at : at + 3], "little")
            last = head & 1 == 1
            kind = head >> 1 & 3
            size = head >> 3
            if kind == 2:
                most += _ZSTD_BLOCK
                at += 3 + size
            else:
                most += size
                at += 3 + (1 if kind == 1 else size)
        if last and descriptor & 4:
            at += 4
    return most


def _decompress_fixed(library: ModuleType, codec: int, data: bytes | memoryview, most: int, limit: int) -> bytes:
    """Decompress into an output that grows until it holds everything, but never past the limit."""
    size = min(_FIXED_OUTPUT_STEP, most)
    while True:
        output = bytearray(size)
        try:
            used = library.decompress_into(data, output)
        except _library().DecompressionError as problem:
            if "failed to write whole buffer" not in str(problem):
                raise
            if size >= most:
                raise _too_large(codec, limit) from None
            size = min(size * 4, most)
            continue
        return bytes(memoryview(output)[:used])
