"""The embedded store's files in memory: for brokers that keep nothing, and for simulations that pull the plug."""

from __future__ import annotations

import random


class MemoryJournalFiles:
    """`crash` keeps what was synced and, of what was not, a prefix that a seeded random chooses."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._synced: dict[str, int] = {}

    def names(self) -> list[str]:
        return sorted(self._files)

    def read(self, name: str) -> bytes:
        return bytes(self._files[name])

    def append(self, name: str, data: bytes) -> None:
        self._files.setdefault(name, bytearray()).extend(data)

    def sync(self, name: str) -> None:
        self._synced[name] = len(self._files.setdefault(name, bytearray()))

    def write_whole(self, name: str, data: bytes) -> None:
        self._files[name] = bytearray(data)
        self._synced[name] = len(data)

    def truncate(self, name: str, size: int) -> None:
        del self._files[name][size:]
        self._synced[name] = size

    def remove(self, name: str) -> None:
        del self._files[name]
        self._synced.pop(name, None)

    def close(self) -> None:
        """Nothing to release; a store that opens these files again finds them as they are."""

    def crash(self, rng: random.Random) -> None:
        for name in self.names():
            content = self._files[name]
            durable = self._synced.get(name)
            if durable is None and rng.random() < 0.5:
                del self._files[name]  # never synced: the directory entry may be lost, too
                continue
            durable = durable or 0
            if len(content) > durable:
                kept = rng.randint(durable, len(content))
                del content[kept:]
                if kept > durable and rng.random() < 0.5:
                    content[rng.randrange(durable, kept)] ^= 1 << rng.randrange(8)
            self._synced[name] = len(content)
