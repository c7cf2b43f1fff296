"""`python -m tools.hot_tests`: the unit tests that `make test` runs a second time, with nothing compiled.

Of a folder with the test of a compiled module those that bear the name of a compiled module, and those that bear no
module's name: they test several at once. Everything else tests the same interpreted code both times; `make test-all`
repeats that, too.
"""

from __future__ import annotations

from pathlib import Path

from tools.hot import UNITS

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "tests/unit"
# Generated messages have no test files of their own: the codec's tests walk them all.
GENERATED = ROOT / "src" / "braidlog" / "wire" / "generated"


COMPILED = {ROOT / path for unit in UNITS.values() for path in unit}
SOURCE = ROOT / "src" / "braidlog"


def folders() -> list[Path]:
    found = {UNIT / path.relative_to(SOURCE).parent for path in COMPILED if not path.is_relative_to(GENERATED)}
    return sorted({*found, UNIT / "wire"})


def files() -> list[Path]:
    return [path for folder in folders() for path in sorted(folder.glob("test_*.py")) if _is_about_compiled(path)]


def _is_about_compiled(path: Path) -> bool:
    tested = SOURCE / path.relative_to(UNIT).with_name(path.name.removeprefix("test_"))
    # Right below tests/unit, what has no module's name is about the tree itself.
    return tested in COMPILED or (not tested.exists() and path.parent != UNIT)


if __name__ == "__main__":
    print(*(path.relative_to(ROOT) for path in files()))
