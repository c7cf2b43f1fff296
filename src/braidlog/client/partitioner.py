"""Which partition a record goes to: by its key exactly as the Java client chooses, or one that takes turns.

The key's hash is murmur2 (32 bits, seed 0x9747b28c) with its sign bit cleared, modulo the number of partitions;
records of one key meet in one partition whichever client wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_SHIFT: Final = 24
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """As an unsigned 32-bit number; Java shows the same bits signed."""
    size = len(data)
    whole = size & ~3
    mixed = (_SEED ^ size) & _WORD
    for at in range(0, whole, 4):
        word = (int.from_bytes(data[at : at + 4], "little") * _FACTOR) & _WORD
        word = ((word ^ (word >> _SHIFT)) * _FACTOR) & _WORD
        mixed = ((mixed * _FACTOR) & _WORD) ^ word
    if whole < size:
        mixed = ((mixed ^ int.from_bytes(data[whole:], "little")) * _FACTOR) & _WORD
    mixed = ((mixed ^ (mixed >> 13)) * _FACTOR) & _WORD
    return mixed ^ (mixed >> 15)


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & _POSITIVE) % partitions


class StickyPartition:
    """For records without a key: stays with one partition until told to move on, so that batches grow full."""

    def __init__(self, available: Sequence[int], random: Random) -> None:
        self._available = available
        self._at = random.randrange(len(available))

    @property
    def current(self) -> int:
        return self._available[self._at]

    def move_on(self) -> None:
        self._at = (self._at + 1) % len(self._available)
