"""Whether the hot modules run compiled, and what to say where they do not."""

from __future__ import annotations

import os

from braidlog.core import slices


def is_compiled() -> bool:
    """One module stands for all: they are compiled together or not at all."""
    return not (slices.__file__ or "").endswith(".py")


def uncompiled_notice() -> str | None:
    """What an operator should know about an uncompiled braidlog; None of a compiled one."""
    if is_compiled():
        return None
    if os.environ.get("BRAIDLOG_PURE") == "1":
        return "running uncompiled, several times slower, because BRAIDLOG_PURE=1 is set"
    return (
        "running uncompiled, several times slower; to compile, install a C compiler and Python's headers, then "
        "reinstall with pip install --force-reinstall --no-cache-dir (in a source tree: make build)"
    )
