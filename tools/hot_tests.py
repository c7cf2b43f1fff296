"""`python -m tools.hot_tests`: the unit tests that `make test` runs a second time, with nothing compiled.

Those of compiled modules that calculate with native integers, which have a width: uncompiled they are Python's own, so
that the same source may come to another result. Everything else is ordinary Python, which `make test` sees running
uncompiled in whole brokers and clients, and `make test-all` in every unit test.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.hot import UNITS

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "tests/unit"
SOURCE = ROOT / "src" / "braidlog"
# Their messages have no test files of their own: the codec's tests walk them all.
GENERATED = SOURCE / "wire" / "generated"

_USES_NATIVE_INTEGERS = re.compile(r"^from mypy_extensions import .*\b(?:i16|i32|i64|u8)\b", re.MULTILINE)
_IMPORTED = re.compile(r"^from (braidlog\.[\w.]+) import", re.MULTILINE)

COMPILED = {ROOT / path for unit in UNITS.values() for path in unit}
NATIVE = {path for path in COMPILED if _USES_NATIVE_INTEGERS.search(path.read_text())}
_NATIVE_NAMES = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in NATIVE}


def files() -> list[Path]:
    folders = {UNIT / path.relative_to(SOURCE).parent for path in NATIVE - set(GENERATED.iterdir())}
    return [path for folder in sorted(folders) for path in sorted(folder.glob("test_*.py")) if _is_about_native(path)]


def _is_about_native(path: Path) -> bool:
    """The test of such a module; or one that bears no module's name, as it tests several, such a one among them."""
    tested = SOURCE / path.relative_to(UNIT).with_name(path.name.removeprefix("test_"))
    if tested.exists():
        return tested in NATIVE
    return not _NATIVE_NAMES.isdisjoint(_IMPORTED.findall(path.read_text()))


if __name__ == "__main__":
    print(*(path.relative_to(ROOT) for path in files()))
