"""Which cluster the embedded store in a directory says it is, read without a lock and without changing a byte."""

from __future__ import annotations

import logging
import os

from braidlog.cluster import paths, records
from braidlog.cluster.journal import CorruptStoreError
from braidlog.cluster.journal_files import PREFIX
from braidlog.cluster.recovery import recover
from braidlog.core.errors import BraidlogError


class StoredFiles:
    """The store's files for reading; what recovery would mend stays as it is."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        found = [name.removeprefix(PREFIX) for name in os.listdir(self._directory) if name.startswith(PREFIX)]
        return sorted(name for name in found if not name.endswith((".tmp", ".lock")) and name != "lock")

    def read(self, name: str) -> bytes:
        with open(os.path.join(self._directory, PREFIX + name), "rb") as file:
            return file.read()

    def append(self, name: str, data: bytes) -> None: ...

    def sync(self, name: str) -> None: ...

    def write_whole(self, name: str, data: bytes) -> None: ...

    def truncate(self, name: str, size: int) -> None: ...

    def remove(self, name: str) -> None: ...

    def close(self) -> None: ...


def stored_cluster_id(directory: str) -> str | None:
    """None where there is no store; raises CorruptStoreError where it cannot be read."""
    files = StoredFiles(directory)
    if not os.path.isdir(directory) or not files.names():
        return None
    # Recovery announces what it would mend; here nothing is mended.
    logging.getLogger("braidlog.cluster.store").setLevel(logging.ERROR)
    try:
        node = recover(files).tree.find(paths.CLUSTER_ID)
        return None if node is None else records.decode_cluster_id(paths.CLUSTER_ID, node.data)
    except CorruptStoreError:
        raise
    except (BraidlogError, ValueError) as problem:
        raise CorruptStoreError(f"{directory}: {problem}") from problem
