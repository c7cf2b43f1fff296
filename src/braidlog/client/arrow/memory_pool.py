"""Where the memory of a table's columns comes from.

Arrow's default pool gives pages back as eagerly as an untuned malloc does, and faulting them in again took longer than
decoding what they hold. So columns come from malloc, which `client.memory` has keep some of what is freed.
"""

from __future__ import annotations

import os
import sys
from functools import cache

import pyarrow as pa

from braidlog.client.malloc_tuning import is_tuned, keep_large_buffers


@cache
def table_pool() -> pa.MemoryPool | None:
    """None, the default one, where somebody else decided about memory."""
    keep_large_buffers()
    if not sys.platform.startswith("linux") or is_decided(os.environ):
        return None
    return pa.system_memory_pool()


def is_decided(environment: os._Environ[str] | dict[str, str]) -> bool:
    return "ARROW_DEFAULT_MEMORY_POOL" in environment or is_tuned(environment)
