"""CRC32C of bytes and views, loaded without the fifty milliseconds that the package's own start-up takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import cast


def _load_crc32c() -> Callable[[bytes | memoryview, int], int]:
    """The extension inside the `crc32c` package; importing the package also reads its metadata, which is slow."""
    package = importlib.util.find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return cast(Callable[[bytes | memoryview, int], int], module.crc32c)
    from crc32c import crc32c as packaged

    return cast(Callable[[bytes | memoryview, int], int], packaged)


# (data, checksum of what came before) -> checksum; takes views without a copy and releases the GIL on large ones.
crc32c: Callable[[bytes | memoryview, int], int] = _load_crc32c()
