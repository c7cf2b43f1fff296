"""A disk in memory that remembers what was made durable, so that it can lose power.

    page cache   what every process sees, and what survives a process that is killed
    durable      what was synced: a file's bytes by `sync`, a directory's entries by `sync_dir`

Until then each change is pending. At a power cut every file and every directory keeps some first part of its own
pending changes, chosen by the seeded random: none, all, or up to a change of which (an append) any first bytes
arrived. A file may also keep its new length with zeros where its bytes never came.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

from braidlog.core.clock import Clock
from braidlog.testing.simulated.loop import Process, ProcessEnded

DEFAULT_CAPACITY: Final = 1 << 40

# What a fault can hit.
WRITE: Final = "write"
READ: Final = "read"
SYNC: Final = "sync"
CREATE: Final = "create"
NAMES: Final = "names"
# Those that change what is on disk.
CHANGES: Final = (WRITE, SYNC, CREATE, NAMES)
# Those that a full disk refuses.
GROWTH: Final = (WRITE, CREATE)

# Takes what a line of the trace is made of.
Trace = Callable[..., None]


class _Append(NamedTuple):
    position: int
    size: int


class _Cut(NamedTuple):
    """A truncation, with what it took away."""

    removed: bytes


class FileNode:
    """The bytes of a file, whatever its names."""

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.pending: list[_Append | _Cut] = []
        self.modified_ms = modified_ms
        # The disk holds room for this many bytes, whatever the file holds.
        self.reserved = 0

    @property
    def footprint(self) -> int:
        return max(len(self.data), self.reserved)

    @property
    def synced_size(self) -> int:
        """How many first bytes a power cut leaves as they are."""
        return min((change.position for change in self.pending if isinstance(change, _Append)), default=len(self.data))

    def append(self, data: bytes) -> None:
        self.pending.append(_Append(len(self.data), len(data)))
        self.data += data

    def truncate(self, size: int) -> None:
        if size > len(self.data):
            self.append(bytes(size - len(self.data)))
        elif size < len(self.data):
            self.pending.append(_Cut(bytes(self.data[size:])))
            del self.data[size:]

    def lose(self, kept: int, torn: float | None, zeroed: bool) -> None:
        """Undo all but the first `kept` changes; of the next one, if it is an append, keep the first part `torn`."""
        while len(self.pending) > kept:
            change = self.pending.pop()
            if isinstance(change, _Cut):
                self.data += change.removed
                continue
            end = change.position
            if len(self.pending) == kept and torn is not None:
                end += int(change.size * torn)
            del self.data[end:]
            if len(self.pending) == kept and zeroed:
                self.data += bytes(change.position + change.size - end)
        self.pending.clear()


class DirectoryNode:
    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        # Each change as the names it touched, with what they named before.
        self.pending: list[tuple[tuple[str, Node | None], ...]] = []

    def change(self, *names: tuple[str, Node | None]) -> None:
        self.pending.append(tuple((name, self.entries.get(name)) for name, _ in names))
        for name, node in names:
            self._put(name, node)

    def lose(self, kept: int) -> None:
        for change in reversed(self.pending[kept:]):
            for name, before in reversed(change):
                self._put(name, before)
        self.pending.clear()

    def _put(self, name: str, node: Node | None) -> None:
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node


Node = FileNode | DirectoryNode


class Fault(NamedTuple):
    """An operation of these kinds, below this directory, fails with `code` once `after` others of them went well."""

    kinds: tuple[str, ...]
    under: str
    code: int
    after: int
    lasting: bool


class MemoryDisk:
    def __init__(self, random: Random, clock: Clock, trace: Trace | None = None) -> None:
        self.root = DirectoryNode()
        self.capacity = DEFAULT_CAPACITY
        self.used = 0
        self.operations = 0
        # While it is a list: kind and path of all that changes the disk, in order.
        self.changes: list[tuple[str, str]] | None = None
        self._random = random
        self._clock = clock
        self._trace = trace
        self._faults: list[Fault] = []
        self._end_after: int | None = None
        # In the order in which they first changed, so that a seed always meets them in the same one.
        self._unsynced_files: dict[FileNode, None] = {}
        self._unsynced_directories: dict[DirectoryNode, None] = {}

    # Faults

    def fail(self, *kinds: str, code: int = errno.EIO, under: str = "/", after: int = 0, lasting: bool = False) -> None:
        self._faults.append(Fault(kinds, under, code, after, lasting))

    def repair(self) -> None:
        """No more faults, and room again."""
        self._faults.clear()
        self._end_after = None
        self.capacity = DEFAULT_CAPACITY

    def end_process_after(self, operations: int | None) -> None:
        """The process that does the next but so many operations ends in the middle of it."""
        self._end_after = operations

    def operate(self, process: Process | None, kind: str, path: str, *note: str | int) -> bool:
        """Called before every operation. True: the process ends within it, as soon as a part is done."""
        if process is not None and not process.alive:
            raise ProcessEnded(f"{process.name} has ended")
        self.operations += 1
        if self.changes is not None and kind in CHANGES:
            self.changes.append((kind, path))
        if self._trace is not None:
            self._trace(kind, path, *note)
        for number, fault in enumerate(self._faults):
            if kind in fault.kinds and path.startswith(fault.under):
                if fault.after > 0:
                    self._faults[number] = fault._replace(after=fault.after - 1)
                    continue
                if not fault.lasting:
                    del self._faults[number]
                raise OSError(fault.code, os.strerror(fault.code), path)
        if self._end_after is not None and process is not None:
            self._end_after -= 1
            if self._end_after < 0:
                self._end_after = None
                return True
        return False

    def end_process(self, process: Process | None) -> None:
        assert process is not None
        process.end()
        raise ProcessEnded(f"{process.name} was ended")

    # Bytes

    def append(self, process: Process | None, path: str, node: FileNode, data: bytes) -> None:
        ends = self.operate(process, WRITE, path, len(data))
        before = node.footprint
        room = self.capacity - self.used + before - len(node.data)
        fits = len(data) <= room
        if ends or not fits:
            part = self._random.randint(0, len(data)) if ends else self._random.randint(0, max(room, 0))
            data = data[: min(part, max(room, 0))]
        if data:
            node.append(data)
            node.modified_ms = self._clock.wall_ms()
            self.used += node.footprint - before
            self._unsynced_files[node] = None
        if ends:
            self.end_process(process)
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def truncate(self, process: Process | None, path: str, node: FileNode, size: int) -> None:
        if self.operate(process, NAMES, path, "cut at", size):
            self.end_process(process)
        self.used += size - node.footprint
        node.reserved = 0
        node.truncate(size)
        node.modified_ms = self._clock.wall_ms()
        self._unsynced_files[node] = None

    def reserve(self, process: Process | None, path: str, node: FileNode, size: int) -> bool:
        if self.operate(process, NAMES, path, "reserve", size):
            self.end_process(process)
        more = size - node.footprint
        if more > self.capacity - self.used:
            return False
        if more > 0:
            node.reserved = size
            self.used += more
        return True

    def sync(self, process: Process | None, path: str, node: FileNode) -> None:
        if self.operate(process, SYNC, path):
            self.end_process(process)
        node.pending.clear()
        self._unsynced_files.pop(node, None)

    # Names

    def change(self, directory: DirectoryNode, *names: tuple[str, Node | None]) -> None:
        for name, _ in names:
            replaced = directory.entries.get(name)
            if isinstance(replaced, FileNode) and all(node is not replaced for _, node in names):
                self.used -= replaced.footprint
        directory.change(*names)
        self._unsynced_directories[directory] = None

    def sync_directory(self, directory: DirectoryNode) -> None:
        directory.pending.clear()
        self._unsynced_directories.pop(directory, None)

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(node, DirectoryNode):
                    return None
                found = node.entries.get(name)
                if found is None:
                    return None
                node = found
        return node

    # Power

    def cut_power(self) -> None:
        """Only what was synced is sure to stay. All processes must have ended."""
        random = self._random
        mood = random.randrange(4)
        for directory in list(self._unsynced_directories):
            directory.lose(self._kept(len(directory.pending), mood))
        for file in list(self._unsynced_files):
            kept = self._kept(len(file.pending), mood)
            torn = random.random() if mood > 1 and random.random() < 0.5 else None
            file.lose(kept, torn, zeroed=mood == 3 and random.random() < 0.2)
        self._unsynced_directories.clear()
        self._unsynced_files.clear()
        self.used = sum(file.footprint for file in self._files(self.root))

    def wipe(self) -> None:
        """An empty disk takes its place. All processes must have ended."""
        self.root = DirectoryNode()
        self._unsynced_directories.clear()
        self._unsynced_files.clear()
        self.used = 0

    def _kept(self, changes: int, mood: int) -> int:
        """How many of so many pending changes survive; in two moods of four all or none of the disk's do."""
        if mood < 2:
            return changes * mood
        outcome = self._random.randrange(3)
        return self._random.randint(0, changes) if outcome == 2 else changes * outcome

    def _files(self, directory: DirectoryNode) -> Iterator[FileNode]:
        for node in directory.entries.values():
            if isinstance(node, FileNode):
                yield node
            else:
                yield from self._files(node)

    def new_file(self) -> FileNode:
        return FileNode(self._clock.wall_ms())
