"""The modules that mypyc compiles, as units that compile apart (one C file and one shared library each)."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def _modules(*names: str) -> list[str]:
    """Paths, relative to the project's root, of the dotted module names that exist."""
    paths = [SOURCE / (name.replace(".", "/") + ".py") for name in names]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise FileNotFoundError(f"tools/hot.py names modules that do not exist: {', '.join(missing)}")
    return [str(path.relative_to(SOURCE.parent)) for path in paths]


UNITS: dict[str, list[str]] = {}
