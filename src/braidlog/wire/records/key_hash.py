"""Which partition a key belongs to, exactly as the Java client chooses (hot: compiled by mypyc).

The key's hash is murmur2 (32 bits, seed 0x9747b28c) with its sign bit cleared, modulo the number of partitions;
records of one key meet in one partition whichever client wrote them.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

# No product below leaves 63 bits: a word has 32, the factor 31.
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes, at: i64, length: i64) -> i64:
    """The hash of `data[at:at + length]` that Java's partitioner takes, as an unsigned number of 32 bits."""
    mixed: i64 = (_SEED ^ length) & _WORD
    rest: i64 = length
    while rest >= 4:
        word: i64 = (i64(read_i32_le(data, at)) & _WORD) * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        mixed = (mixed * _FACTOR & _WORD) ^ word
        at += 4
        rest -= 4
    if rest > 0:
        if rest == 3:
            mixed ^= i64(data[at + 2]) << 16
        if rest >= 2:
            mixed ^= i64(data[at + 1]) << 8
        mixed = (mixed ^ i64(data[at])) * _FACTOR & _WORD
    mixed = (mixed ^ mixed >> 13) * _FACTOR & _WORD
    return mixed ^ mixed >> 15


def partition_for_key(key: bytes, partitions: i64) -> i64:
    return (murmur2(key, 0, len(key)) & _POSITIVE) % partitions
