"""The path of a Unix socket, however long: the system takes 107 bytes, and a data directory may lie deeper."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from braidlog.core.errors import FatalError

_MOST_BYTES: Final = 107 if sys.platform == "linux" else 103


@contextmanager
def reachable_path(path: str) -> Iterator[str]:
    """A name for `path` that `bind` and `connect` take, while this lasts."""
    if len(os.fsencode(path)) <= _MOST_BYTES:
        yield path
        return
    directory, name = os.path.split(path)
    if sys.platform != "linux":
        raise FatalError(f"{path} is too long for a socket: choose a data directory with a shorter path")
    # The name of the directory's descriptor is short.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
