"""The coordination store's files on any `Files`, so that its journal shares a simulated disk with the logs."""

from __future__ import annotations

from braidlog.cluster.journal_files import PREFIX
from braidlog.storage.files import File, Files


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
