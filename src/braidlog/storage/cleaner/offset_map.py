"""The newest offset of every key, in a fixed amount of memory (hot: compiled by mypyc).

Two flat arrays of `slots` entries, addressed and probed by the key's hash:

    hashes    | BLAKE2b of the key: 16 bytes | …
    offsets   | offset + 1: 8 bytes          | …     0 = the slot is free

Two keys with the same hash would be taken for one; with 128 bits that is less likely than a memory error. A dict of
`bytes` would cost about 150 bytes an entry and have no bound.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

SLOT_BYTES: Final = 24
_HASH_BYTES: Final = 16
_POSITIVE: Final = 0x7FFFFFFFFFFFFFFF
NOT_FOUND: Final = -1


class OffsetMap:
    """At most `memory_bytes // 24` slots, filled to `load_factor`; `put` past that returns False."""

    def __init__(self, memory_bytes: int, load_factor: float = 0.9, most_keys: int | None = None) -> None:
        slots = max(memory_bytes // SLOT_BYTES, 3)
        if most_keys is not None:
            # No more keys than offsets can turn up, so a small dirty section takes a small map, with room to spare.
            slots = min(slots, 2 * most_keys + 3)
        # A prime, so that every step from slot to slot visits all of them.
        self.slots: int = _prime_at_most(slots)
        # At least one slot stays free, or a search for an absent key would never end.
        self.capacity: int = min(max(int(self.slots * load_factor), 1), self.slots - 1)
        self.size: int = 0
        # Largest offset that the map knows of, also of records without an effect on it.
        self.latest_offset: int = -1
        self._hashes = bytearray(self.slots * _HASH_BYTES)
        self._offsets = array("q", bytes(self.slots * 8))

    @property
    def is_full(self) -> bool:
        return self.size >= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Remember `offset` as the newest of `key`; offsets come in ascending order. False: no room for a new key."""
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        slot = self._find(digest)
        if self._offsets[slot] == 0:
            if self.size >= self.capacity:
                return False
            self._hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] = digest
            self.size += 1
        self._offsets[slot] = offset + 1
        if offset > self.latest_offset:
            self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of `key`, or NOT_FOUND."""
        return self._offsets[self._find(blake2b(key, digest_size=_HASH_BYTES).digest())] - 1

    def cover(self, offset: int) -> None:
        """Records up to `offset` have been seen, whether they had a key or not."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def _find(self, digest: bytes) -> int:
        """The slot that holds `digest`, or the free one where it belongs."""
        hashes = self._hashes
        offsets = self._offsets
        slots: i64 = self.slots
        slot: i64 = (read_i64_be(digest, 0) & _POSITIVE) % slots
        # The other half of the hash decides the step, so that keys which meet once part again.
        step: i64 = 1 + (read_i64_be(digest, 8) & _POSITIVE) % (slots - 1)
        while offsets[slot] != 0 and not hashes.startswith(digest, slot * _HASH_BYTES):
            slot += step
            if slot >= slots:
                slot -= slots
        return slot


def _prime_at_most(number: int) -> int:
    while not _is_prime(number):
        number -= 1
    return number


def _is_prime(number: int) -> bool:
    divisor: i64 = 2
    candidate: i64 = number
    while divisor * divisor <= candidate:
        if candidate % divisor == 0:
            return False
        divisor += 1
    return True
