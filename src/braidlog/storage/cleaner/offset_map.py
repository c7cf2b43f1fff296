"""The newest offset of every key, in a fixed amount of memory.

One flat buffer of 24-byte slots, addressed by the key's hash and probed linearly:

    0               16              24
    | MD5 of the key | offset + 1    |      all zero = free

Two keys with the same hash would be taken for one; with 128 bits that is less likely than a memory error. A dict of
`bytes` would cost about 150 bytes an entry and have no bound.
"""

from __future__ import annotations

from hashlib import md5
from struct import Struct
from typing import Final

from mypy_extensions import i64

SLOT_BYTES: Final = 24
_HASH_BYTES: Final = 16
_FREE: Final = bytes(SLOT_BYTES - _HASH_BYTES)
_OFFSET: Final = Struct(">q")
_START: Final = Struct(">Q")
NOT_FOUND: Final = -1


class OffsetMap:
    """At most `memory_bytes // 24` slots, filled to `load_factor`; `put` past that returns False."""

    def __init__(self, memory_bytes: int, load_factor: float = 0.9, most_keys: int | None = None) -> None:
        slots = max(memory_bytes // SLOT_BYTES, 1)
        if most_keys is not None:
            # No more keys than offsets can turn up, so a small dirty section takes a small map.
            slots = min(slots, int(most_keys / load_factor) + 2)
        self.slots: int = slots
        # At least one slot stays free, or a search for an absent key would never end.
        self.capacity: int = min(max(int(slots * load_factor), 1), slots - 1) if slots > 1 else 0
        self.size: int = 0
        # Largest offset that the map knows of, also of records without an effect on it.
        self.latest_offset: int = -1
        self._buffer = bytearray(slots * SLOT_BYTES)

    @property
    def is_full(self) -> bool:
        return self.size >= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Remember `offset` as the newest of `key`; offsets come in ascending order. False: no room for a new key."""
        digest = md5(key, usedforsecurity=False).digest()
        position = self._find(digest)
        buffer = self._buffer
        if buffer.startswith(_FREE, position + _HASH_BYTES):
            if self.size >= self.capacity:
                return False
            buffer[position : position + _HASH_BYTES] = digest
            self.size += 1
        _OFFSET.pack_into(buffer, position + _HASH_BYTES, offset + 1)
        if offset > self.latest_offset:
            self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of `key`, or NOT_FOUND."""
        position = self._find(md5(key, usedforsecurity=False).digest())
        offset: int = _OFFSET.unpack_from(self._buffer, position + _HASH_BYTES)[0]
        return offset - 1

    def cover(self, offset: int) -> None:
        """Records up to `offset` have been seen, whether they had a key or not."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def _find(self, digest: bytes) -> int:
        """Position of the slot that holds `digest`, or of the free one where it belongs."""
        buffer = self._buffer
        slots: i64 = self.slots
        start: int = _START.unpack_from(digest, 0)[0]
        slot: i64 = start % self.slots
        while True:
            position = slot * SLOT_BYTES
            if buffer.startswith(_FREE, position + _HASH_BYTES) or buffer.startswith(digest, position):
                return position
            slot += 1
            if slot == slots:
                slot = 0
