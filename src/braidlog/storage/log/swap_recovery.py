"""What an interrupted deletion or compaction left in a partition's directory, removed or completed.

.deleted   going anyway: removed
.cleaned   compaction had not finished: removed, and with it every `.swap` at or past the lowest of them, because
           they belong to the same unfinished set
.swap      compaction had finished: the old segments in their range go, the swap is completed
.tmp       a file that was about to replace another: removed
"""

from __future__ import annotations

import logging

from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.segment_file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_TEMPORARY_SUFFIX = ".tmp"

_log = logging.getLogger(__name__)


def base_offset_of(name: str) -> int | None:
    """The offset that a segment file's name starts with; None for other files."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def complete_interrupted_swaps(state: LocalLog) -> list[str]:
    """Bring the directory into the state that an undisturbed run would have left; returns what was removed."""
    names = state.files.listdir(state.directory)
    doomed = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, _TEMPORARY_SUFFIX))]
    unfinished = [base_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    lowest = min((base for base in unfinished if base is not None), default=None)
    swapped: list[str] = []
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            base = base_offset_of(name)
            if base is None or (lowest is not None and base >= lowest):
                doomed.append(name)
            else:
                swapped.append(name)
    _remove(state, doomed)
    replaced = _complete_swap(state, swapped) if swapped else []
    orphans = _orphaned_indexes(state)
    _remove(state, orphans)
    return doomed + replaced + orphans


def _complete_swap(state: LocalLog, swapped: list[str]) -> list[str]:
    lower: int | None = None
    upper = -1
    for name in swapped:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = base_offset_of(name)
            assert base is not None
            segment = state.open_segment(base, SWAP_SUFFIX)
            lower = base if lower is None else min(lower, base)
            upper = max(upper, segment.read_next_offset(), base + 1)
            segment.release()
    replaced: list[str] = []
    if lower is not None:
        for name in state.files.listdir(state.directory):
            base = base_offset_of(name)
            is_segment = name.endswith((LOG_SUFFIX, *_INDEX_SUFFIXES))
            if is_segment and base is not None and lower <= base < upper:
                replaced.append(name)
    _remove(state, replaced)
    for name in sorted(swapped, key=_log_last):
        path = f"{state.directory}/{name}"
        state.files.rename(path, path.removesuffix(SWAP_SUFFIX))
    state.files.sync_dir(state.directory)
    _log.info("%s: completed an interrupted compaction of offsets %s to %d", state.topic_partition, lower, upper - 1)
    return replaced


def _orphaned_indexes(state: LocalLog) -> list[str]:
    names = state.files.listdir(state.directory)
    logs = {base_offset_of(name) for name in names if name.endswith(LOG_SUFFIX)}
    return [name for name in names if name.endswith(_INDEX_SUFFIXES) and base_offset_of(name) not in logs]


def _log_last(name: str) -> bool:
    return name.endswith(LOG_SUFFIX + SWAP_SUFFIX)


def _remove(state: LocalLog, names: list[str]) -> None:
    for name in names:
        state.files.remove(f"{state.directory}/{name}")
