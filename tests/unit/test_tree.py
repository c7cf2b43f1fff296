"""The shape of the source tree: no name twice, modules that are concepts, packages that say what they hold."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.source_tree import SOURCE, modules

# A module of fewer lines that one other imports is a fragment of that one; so many may be left.
SMALL_LINES = 90
MOST_SMALL = 24
# What their own modules import.
FOR_OPERATORS = {"braidlog.policies"}
# More than this, and a package wants sub-packages.
MOST_MODULES = 24
# One for each word that stands behind `braidlog`: whoever looks for one knows its name.
COMMANDS = "braidlog/cli/commands"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imported(path: Path) -> Iterator[str]:
    """Dotted names that a file imports, of modules and of what is in them."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_no_two_classes_of_a_family_share_a_name() -> None:
    """A family is a package below `braidlog`, or the whole of the Spark package."""
    homes = defaultdict(list)
    for module, path in modules().items():
        family = ".".join(module.split(".")[: 2 if module.startswith("braidlog.") else 1])
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[family, node.name].append(module)
    shared = {f"{family}: {name}": where for (family, name), where in homes.items() if len(where) > 1}
    assert shared == {}


def test_few_modules_are_fragments_of_their_only_importer() -> None:
    importers = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for name in imported(path):
            importers[name].add(path)
    small = [
        name
        for name, path in modules().items()
        if len(path.read_text().splitlines()) < SMALL_LINES
        and len(importers[name] - {path}) == 1
        and name not in FOR_OPERATORS
    ]
    assert len(small) <= MOST_SMALL, small


def test_no_package_is_a_heap() -> None:
    sizes = Counter(path.parent.relative_to(SOURCE).as_posix() for path in modules().values())
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES and name != COMMANDS} == {}


@pytest.mark.parametrize(
    "package",
    sorted({path.parent for path in SOURCE.rglob("__init__.py") if "templates" not in path.parts}),
    ids=lambda each: each.relative_to(SOURCE).as_posix(),
)
def test_a_package_says_what_lives_there(package: Path) -> None:
    said = ast.get_docstring(tree_of(package / "__init__.py"))
    assert said, "write one sentence: what lives there, and what may not"
    assert len(said.split()) > 3
