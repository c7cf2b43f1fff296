"""Copies of files with their checksums, in pieces, and what both ends of an archive need of a stopped broker's disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from braidlog.core.errors import CorruptLogError, UserError
from braidlog.storage.dirs.directory_lock import lock_directory
from braidlog.storage.dirs.log_directory import CLEAN_SHUTDOWN
from braidlog.storage.dirs.meta_properties import FILE_NAME, MetaProperties, decode_meta_properties

_PIECE: Final = 1 << 20

# (bytes done, bytes in all, path)
Progress = Callable[[int, int, str], None]


def copied(source: Path, target: Path) -> tuple[int, str]:
    """Copy a file that is not there yet and sync it; its size and sha256."""
    digest = hashlib.sha256()
    size = 0
    with source.open("rb") as read, target.open("xb") as write:
        while piece := read.read(_PIECE):
            digest.update(piece)
            write.write(piece)
            size += len(piece)
        write.flush()
        os.fsync(write.fileno())
    return size, digest.hexdigest()


def checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as read:
        while piece := read.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def stopped_broker(directories: Sequence[str]) -> Iterator[MetaProperties]:
    """Hold the data directories of one broker that was stopped cleanly; UserError where that is not so."""
    with ExitStack() as held:
        owners: list[MetaProperties] = []
        for directory in directories:
            path = Path(directory) / FILE_NAME
            if not path.is_file():
                raise UserError(f"{directory} is no data directory of a broker: it has no {FILE_NAME}")
            held.callback(lock_directory(directory).release)
            if not (Path(directory) / CLEAN_SHUTDOWN).exists():
                raise UserError(
                    f"{directory} was not stopped cleanly: start its broker, and stop it with SIGTERM, so that its "
                    "logs are whole"
                )
            try:
                owners.append(decode_meta_properties(path.read_text("utf-8", "replace"), str(path)))
            except CorruptLogError as problem:
                raise UserError(str(problem)) from None
        first = owners[0]
        if any((each.cluster_id, each.node_id) != (first.cluster_id, first.node_id) for each in owners):
            raise UserError(f"{', '.join(directories)} are not the directories of one broker")
        if first.cluster_id is None or first.node_id is None:
            raise UserError(f"{directories[0]} does not say which broker it belongs to: start and stop that once")
        yield first
