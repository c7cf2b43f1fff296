"""Which partition a key belongs to, exactly as the Java client chooses (hot: compiled by mypyc).

The key's hash is murmur2 (32 bits, seed 0x9747b28c) with its sign bit cleared, modulo the number of partitions;
records of one key meet in one partition whichever client wrote them.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

# No product below leaves 63 bits: a word has 32, the factor 31.
_SEED: Final[i64] = 0x9747B28C
_FACTOR: Final[i64] = 0x5BD1E995
_WORD: Final[i64] = 0xFFFFFFFF
_POSITIVE: Final[i64] = 0x7FFFFFFF


def murmur2(data: bytes) -> i64:
    """As an unsigned 32-bit number; Java shows the same bits signed."""
    size: i64 = len(data)
    whole: i64 = size & ~3
    mixed: i64 = (_SEED ^ size) & _WORD
    at: i64 = 0
    while at < whole:
        word: i64 = ((i64(read_i32_le(data, at)) & _WORD) * _FACTOR) & _WORD
        word = ((word ^ (word >> 24)) * _FACTOR) & _WORD
        mixed = ((mixed * _FACTOR) & _WORD) ^ word
        at += 4
    if whole < size:
        at = size - 1
        tail: i64 = 0
        while at >= whole:
            tail = (tail << 8) | data[at]
            at -= 1
        mixed = ((mixed ^ tail) * _FACTOR) & _WORD
    mixed = ((mixed ^ (mixed >> 13)) * _FACTOR) & _WORD
    return mixed ^ (mixed >> 15)


def partition_of_key(key: bytes, partitions: i64) -> i64:
    return (murmur2(key) & _POSITIVE) % partitions
