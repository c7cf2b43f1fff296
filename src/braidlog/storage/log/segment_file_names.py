"""How the files of a segment are called: the base offset in 20 digits, and a suffix for each kind and state."""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
# Of producer state, at the base offset of a segment; not part of it.
SNAPSHOT_SUFFIX: Final = ".snapshot"
# The log last: as long as it is there, so is the segment.
SUFFIXES: Final = (TXN_INDEX_SUFFIX, TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETED_SUFFIX: Final = ".deleted"
# Of a file that is about to replace another.
TEMPORARY_SUFFIX: Final = ".tmp"
# What a file may carry on top of its kind.
STATE_SUFFIXES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)


def file_name(base_offset: int, suffix: str = "") -> str:
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset that a segment file's name starts with; None for other files."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and len(digits) == 20 and digits.isascii() and digits.isdigit() else None
