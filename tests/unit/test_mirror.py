"""`tests/unit` mirrors the source: a module has its test file, or a row in covered_elsewhere.toml says what tests it.

`src/braidlog/x/y.py` has `tests/unit/x/test_y.py`, `src/pyspark_braidlog/x.py` has
`tests/unit/pyspark_braidlog/test_x.py`. A row names one module, or a package of tables or programs that one test walks.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

from support.source_tree import ROOT, modules

UNIT = ROOT / "tests/unit"
ROWS = UNIT / "covered_elsewhere.toml"
# More, and the list is an excuse.
MOST_ROWS = 60


@cache
def rows() -> dict[str, str]:
    """Dotted name of a module or a package -> the test file that covers it, from the project's root."""
    tables = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return {name: test for table in tables.values() for name, test in table.items()}


def own_test(module: str) -> Path:
    *packages, name = module.removeprefix("braidlog.").split(".")
    return UNIT.joinpath(*packages) / f"test_{name}.py"


def covered(row: str) -> list[str]:
    """The modules that a row stands for."""
    return [name for name in modules() if name == row or name.startswith(f"{row}.")]


def public_names(path: Path) -> set[str]:
    """What a module defines at its top for others: classes, functions, constants."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {name for name in found if not name.startswith("_")}


def test_every_module_has_its_test_file_or_a_row() -> None:
    listed = {module for row in rows() for module in covered(row)}
    missing = [
        f"{module}: write {own_test(module).relative_to(ROOT)}, or say in {ROWS.name} which test covers it"
        for module in modules()
        if module not in listed and not own_test(module).exists()
    ]
    assert missing == []


def test_a_row_stands_for_modules_that_exist_and_have_no_test_file() -> None:
    stale = [f"{row}: no such module or package" for row in rows() if not covered(row)]
    for row in rows():
        stale += [f"{row}: {name} has its own test file" for name in covered(row) if own_test(name).exists()]
    assert stale == []


def names(test: str, module: str) -> bool:
    """Whether the text of a test names a module, or something that it defines."""
    words = set(re.findall(r"[\w.]+", test))
    package, _, name = module.rpartition(".")
    return module in words or (package in words and name in words) or bool(public_names(modules()[module]) & words)


def test_a_row_names_a_test_that_exists_and_uses_the_module() -> None:
    wrong = []
    for row, test in rows().items():
        path = ROOT / test
        if not re.fullmatch(r"tests/.*test_\w+\.py", test) or not path.is_file():
            wrong.append(f"{row}: no test file {test}")
        # Tests of a whole process or cluster name what a user does; a unit test names what it tests.
        elif path.is_relative_to(UNIT) and not any(
            names(path.read_text(encoding="utf-8"), each) for each in covered(row)
        ):
            wrong.append(f"{row}: {test} names neither the module nor what it defines")
    assert wrong == []


def test_the_list_stays_short() -> None:
    assert len(rows()) < MOST_ROWS
