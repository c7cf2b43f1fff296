"""What a power cut may leave of a disk in memory."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from braidlog.core.clock import ManualClock
from braidlog.storage.files import Files
from braidlog.testing.simulated.disk import MemoryDisk
from braidlog.testing.simulated.memory_files import MemoryFiles


def outcomes(prepare: Callable[[Files], None], look: Callable[[Files], object]) -> set[object]:
    """What is found after `prepare` and a power cut, over many seeds."""
    found: set[object] = set()
    for seed in range(200):
        disk = MemoryDisk(Random(seed), ManualClock())
        files = MemoryFiles(disk)
        files.mkdir("/d")
        files.sync_dir("/")
        prepare(files)
        disk.cut_power()
        found.add(look(files))
    return found
