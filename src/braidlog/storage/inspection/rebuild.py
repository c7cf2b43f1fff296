"""`braidlog log rebuild-index`: offset, time and transaction index of every segment, from the batches alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from braidlog.core.clock import Clock
from braidlog.core.errors import UserError
from braidlog.storage.dirs.directory_lock import LOCK_NAME, lock_directory
from braidlog.storage.dirs.log_directory import LockDirectory
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.segment_file_names import LOG_SUFFIX
from braidlog.storage.log.segment_recovery import recover_segment
from braidlog.storage.producers.producer_state_manager import ProducerStateManager

_OPEN_FILES: Final = 16
_NEVER_MS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class RebuiltSegment:
    path: str
    bytes_read: int
    size: int
    index_entries: int
    time_index_entries: int
    aborted_transactions: int
    # Why the indexes end before the segment does; none for a sound one. The log itself is never changed.
    problem: str | None


# (bytes done, bytes in all, path of the segment)
Progress = Callable[[int, int, str], None]


def rebuild_index(
    files: Files,
    directory: str,
    clock: Clock,
    *,
    progress: Progress | None = None,
    lock: LockDirectory = lock_directory,
    interval_bytes: int = 4096,
    index_bytes: int = 10 * 1024 * 1024,
) -> list[RebuiltSegment]:
    """Of one partition directory, while no broker uses it; UserError if one does or it holds no segments."""
    bases = segment_bases(files, directory)
    parent = directory.rstrip("/").rpartition("/")[0] or "."
    held = lock(parent) if files.exists(f"{parent}/{LOCK_NAME}") else None
    try:
        handles = HandlePool(files, _OPEN_FILES)
        segments = [
            LogSegment.open(
                files,
                handles,
                directory.rstrip("/"),
                base,
                created_ms=clock.wall_ms(),
                interval_bytes=interval_bytes,
                index_bytes=index_bytes,
            )
            for base in bases
        ]
        total = sum(segment.size for segment in segments)
        producers = ProducerStateManager(directory, _NEVER_MS)
        rebuilt: list[RebuiltSegment] = []
        done = 0
        for segment in segments:
            rebuilt.append(_rebuild(segment, producers))
            done += segment.size
            if progress is not None:
                progress(done, total, segment.log_path)
        files.sync_dir(directory)
        return rebuilt
    finally:
        if held is not None:
            held.release()


def segment_bases(files: Files, directory: str) -> list[int]:
    """Base offsets of a partition directory's segments, ascending."""
    if not files.is_dir(directory):
        raise UserError(f"{directory} is not a directory: name a partition's, such as DATA/orders-0")
    names = files.listdir(directory)
    stems = [name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)]
    bases = sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())
    if not bases:
        raise UserError(f"{directory} holds no segments: name a partition's directory, such as DATA/orders-0")
    return bases


def _rebuild(segment: LogSegment, producers: ProducerStateManager) -> RebuiltSegment:
    result = recover_segment(segment, producers, None)
    segment.write_indexes()
    segment.sync_indexes()
    rebuilt = RebuiltSegment(
        segment.log_path,
        result.valid_bytes,
        segment.size,
        segment.offset_index.count,
        segment.time_index.count,
        len(segment.txn_index.entries()),
        result.reason,
    )
    segment.release()
    return rebuilt
