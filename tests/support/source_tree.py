"""The modules of the source, for tests of its shape."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, without packages' `__init__`, generated code and templates."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "__init__.py" and not {"generated", "templates"} & set(path.parts):
            found[".".join(path.relative_to(SOURCE).with_suffix("").parts)] = path
    return found
