"""Compiles the hot modules with mypyc.

The same sources run uncompiled, so a machine without a C compiler still gets a working (slower) package;
`BRAIDLOG_PURE=1` at build time asks for that on purpose. Which modules are hot is said in `tools/hot.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))


def hot_extensions() -> Sequence[Any]:
    if os.environ.get("BRAIDLOG_PURE") == "1":
        return []
    if shutil.which(os.environ.get("CC", "cc")) is None:
        print("braidlog: no C compiler found; installing the uncompiled (slower) package", file=sys.stderr)
        return []
    from mypyc.build import mypycify
    from tools.hot import UNITS, add_docstrings

    sources = [path for unit in UNITS.values() for path in unit]
    groups: list[tuple[list[str], str | None]] = [(unit, name) for name, unit in UNITS.items()]
    if not sources:
        return []
    extensions: Sequence[Any] = mypycify(
        ["--strict", *sources],
        opt_level=os.environ.get("BRAIDLOG_OPT", "2"),
        debug_level="0",
        separate=groups,
    )
    add_docstrings(source for extension in extensions for source in extension.sources)
    return extensions


setup(ext_modules=list(hot_extensions()))
