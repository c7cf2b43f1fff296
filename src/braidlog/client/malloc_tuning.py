"""Has the C allocator keep freed megabytes, instead of giving their pages back only to fault them in again.

Answers to fetches and tables come and go in blocks of megabytes. With glibc's own thresholds the kernel maps, clears
and unmaps every one of them, which takes longer than decoding what they hold.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_MMAP_FROM: Final = 16 << 20
_KEEP: Final = 64 << 20

_is_done = False


def keep_large_buffers() -> None:
    """Once per process; not where the environment tells malloc what to do, nor where the C library is another."""
    global _is_done
    if _is_done:
        return
    _is_done = True
    if not sys.platform.startswith("linux") or is_tuned(os.environ):
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEEP)


def is_tuned(environment: os._Environ[str] | dict[str, str]) -> bool:
    """Whether malloc is tuned already, or replaced."""
    return (
        "MALLOC_TRIM_THRESHOLD_" in environment
        or "MALLOC_MMAP_THRESHOLD_" in environment
        or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")
        or "malloc" in environment.get("LD_PRELOAD", "")
    )
