"""Libraries in C that stand between a program and its system calls (LD_PRELOAD)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def preloaded_library(source: str, place: Path) -> Path:
    """Compiled into `place` from the source of that name beside this module; skips the test without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: no system calls can be replaced")
    path = Path(__file__).with_name(source)
    library = place / path.with_suffix(".so").name
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(path), "-ldl"], check=True)
    return library
