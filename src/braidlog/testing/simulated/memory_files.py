"""The storage port `Files` on a disk in memory, as one process sees it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from braidlog.cluster.journal_files import PREFIX
from braidlog.storage.files import DiskUsage, File, Files, Part
from braidlog.testing.simulated.disk import CREATE, NAMES, READ, SYNC, DirectoryNode, FileNode, MemoryDisk, Node
from braidlog.testing.simulated.loop import Process


class MemoryFile(File):
    def __init__(self, disk: MemoryDisk, process: Process | None, path: str, node: FileNode, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._process = process
        self._node = node
        self._writable = writable

    def writev(self, parts: Sequence[Part]) -> None:
        if not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        data = b"".join(parts)
        if data:
            self._disk.append(self._process, self.path, self._node, data)

    def pread(self, size: int, position: int) -> bytes:
        if self._disk.operate(self._process, READ, self.path, size, "at", position):
            self._disk.end_process(self._process)
        return bytes(self._node.data[position : position + size])

    def size(self) -> int:
        return len(self._node.data)

    def sync(self) -> None:
        self._disk.sync(self._process, self.path, self._node)

    def truncate(self, size: int) -> None:
        self._disk.truncate(self._process, self.path, self._node, size)

    def reserve(self, size: int) -> bool:
        return self._disk.reserve(self._process, self.path, self._node, size)

    def close(self) -> None:
        return None

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor", self.path)


class MemoryFiles(Files):
    """Works until its process ends; what the disk holds outlives it."""

    def __init__(self, disk: MemoryDisk, process: Process | None = None) -> None:
        self._disk = disk
        self._process = process

    # Looking

    def exists(self, path: str) -> bool:
        return self._disk.find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._disk.find(path), DirectoryNode)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def read_bytes(self, path: str) -> bytes:
        node = self._file(path)
        self._operate(READ, path, "all")
        return bytes(node.data)

    def disk_usage(self, path: str) -> DiskUsage:
        self._directory(path)
        return DiskUsage(self._disk.capacity, max(self._disk.capacity - self._disk.used, 0))

    # Changing

    def open_append(self, path: str) -> File:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            self._operate(CREATE, path, "create")
            node = self._disk.new_file()
            self._disk.change(directory, (name, node))
        if not isinstance(node, FileNode):
            raise _refused(errno.EISDIR, path)
        return MemoryFile(self._disk, self._process, path, node, True)

    def open_read(self, path: str) -> File:
        return MemoryFile(self._disk, self._process, path, self._file(path), False)

    def mkdir(self, path: str) -> None:
        here = ""
        for name in path.split("/"):
            if not name:
                continue
            parent = self._directory(here or "/")
            here = f"{here}/{name}"
            node = parent.entries.get(name)
            if node is None:
                self._operate(CREATE, here, "mkdir")
                self._disk.change(parent, (name, DirectoryNode()))
            elif not isinstance(node, DirectoryNode):
                raise _refused(errno.EEXIST, here)

    def rename(self, source: str, target: str) -> None:
        directory, old = self._parent(source)
        node = directory.entries.get(old)
        if node is None:
            raise _refused(errno.ENOENT, source)
        other, new = self._parent(target)
        if other is not directory:
            raise _refused(errno.EXDEV, target)
        replaced = directory.entries.get(new)
        if isinstance(replaced, DirectoryNode):
            raise _refused(errno.ENOTEMPTY if isinstance(node, DirectoryNode) else errno.EISDIR, target)
        self._operate(NAMES, source, "rename to", new)
        if old != new:
            self._disk.change(directory, (old, None), (new, node))

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            raise _refused(errno.ENOENT, path)
        if isinstance(node, DirectoryNode):
            raise _refused(errno.EISDIR, path)
        self._operate(NAMES, path, "remove")
        self._disk.change(directory, (name, None))

    def rmtree(self, path: str) -> None:
        node = self._disk.find(path)
        if node is None:
            return
        if not isinstance(node, DirectoryNode):
            raise _refused(errno.ENOTDIR, path)
        for name, child in list(node.entries.items()):
            if isinstance(child, DirectoryNode):
                self.rmtree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        directory, name = self._parent(path)
        self._operate(NAMES, path, "rmdir")
        self._disk.change(directory, (name, None))

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._operate(SYNC, path, "directory")
        self._disk.sync_directory(directory)

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        self._file(path).modified_ms = when_ms

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        unsynced = f"{path}.tmp"
        file = self.open_append(unsynced)
        if file.size() > 0:
            file.truncate(0)
        file.writev([data])
        if sync:
            file.sync()
        self.rename(unsynced, path)
        if sync:
            self.sync_dir(os.path.dirname(path) or "/")

    # Finding

    def _operate(self, kind: str, path: str, *note: str) -> None:
        if self._disk.operate(self._process, kind, path, *note):
            self._disk.end_process(self._process)

    def _file(self, path: str) -> FileNode:
        node = self._require(path)
        if not isinstance(node, FileNode):
            raise _refused(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._require(path)
        if not isinstance(node, DirectoryNode):
            raise _refused(errno.ENOTDIR, path)
        return node

    def _require(self, path: str) -> Node:
        node = self._disk.find(path)
        if node is None:
            raise _refused(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent or "/"), name


def _refused(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class JournalOnFiles:
    """Syncs where the adapter over the operating system does, and nowhere else."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        files.mkdir(directory)
        self._new: set[str] = set()

    def names(self) -> list[str]:
        found = [name for name in self._files.listdir(self._directory) if name.startswith(PREFIX)]
        return [name.removeprefix(PREFIX) for name in found if not name.endswith((".tmp", ".lock"))]

    def read(self, name: str) -> bytes:
        return self._files.read_bytes(self._path(name))

    def append(self, name: str, data: bytes) -> None:
        self._open(name).writev([data])

    def sync(self, name: str) -> None:
        self._open(name).sync()
        if name in self._new:
            self._files.sync_dir(self._directory)
            self._new.discard(name)

    def write_whole(self, name: str, data: bytes) -> None:
        self._files.write_atomic(self._path(name), data)

    def truncate(self, name: str, size: int) -> None:
        file = self._open(name)
        file.truncate(size)
        file.sync()

    def remove(self, name: str) -> None:
        self._files.remove(self._path(name))

    def close(self) -> None:
        return None

    def _open(self, name: str) -> File:
        path = self._path(name)
        if not self._files.exists(path):
            self._new.add(name)
        return self._files.open_append(path)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{PREFIX}{name}"
