"""Tells the C allocator to keep large buffers instead of giving their pages back after every request, until they are
not needed any more.

Without this each megabyte that is received or decompressed is mapped, faulted in page by page and unmapped again,
which cost 40 % of a produce of compressed batches.
"""

from __future__ import annotations

import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_MMAP_FROM: Final = 8 << 20
_KEEP: Final = 24 << 20


def keep_large_buffers() -> bool:
    """False where the C library knows no such thing (macOS, musl)."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Threads that sync and read files allocate little: they need no arenas of their own.
    settings = ((_M_MMAP_THRESHOLD, _MMAP_FROM), (_M_TRIM_THRESHOLD, _KEEP), (_M_ARENA_MAX, 1))
    refused = [name for name, value in settings if mallopt(name, value) != 1]
    return not refused


def give_back_memory() -> None:
    """Return what is free to the system. It takes a while: not for the loop."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
