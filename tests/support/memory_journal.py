"""The coordination store's files on a disk in memory, for tests that cut the power."""

from __future__ import annotations

from random import Random

from braidlog.core.clock import ManualClock
from braidlog.testing.simulated.disk import FileNode, MemoryDisk
from braidlog.testing.simulated.memory_files import JournalOnFiles, MemoryFiles

_DIRECTORY = "/store"


class MemoryJournalFiles(JournalOnFiles):
    def __init__(self) -> None:
        self._random = Random(0)
        self._disk = MemoryDisk(self._random, ManualClock())
        files = MemoryFiles(self._disk)
        super().__init__(files, _DIRECTORY)
        files.sync_dir("/")

    def crash(self, rng: Random) -> None:
        """Cut the power: what was synced stays; of the rest some may, at times with a flipped bit in it."""
        synced = {node: node.synced_size for node in map(self._node, self.names())}
        self._random.setstate(rng.getstate())
        self._disk.cut_power()
        for node in map(self._node, self.names()):
            size = len(node.data)
            safe = synced.get(node, size)
            if size > safe and self._random.random() < 0.5:
                node.data[self._random.randrange(safe, size)] ^= 1 << self._random.randrange(8)

    def _node(self, name: str) -> FileNode:
        node = self._disk.find(self._path(name))
        assert isinstance(node, FileNode)
        return node
