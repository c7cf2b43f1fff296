"""How the files of a segment are called: the base offset in 20 digits, and a suffix for each kind and state."""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
# The log last: as long as it is there, so is the segment.
SUFFIXES: Final = (TXN_INDEX_SUFFIX, TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETED_SUFFIX: Final = ".deleted"


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"
