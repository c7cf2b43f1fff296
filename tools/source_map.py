"""Writes docs/source-map.md from the packages' docstrings: `python -m tools.source_map`.

A package says in the first sentence of its `__init__` what lives there and what may not; this page collects them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
PAGE = ROOT / "docs" / "source-map.md"

HEAD = """\
# The map of the source

Every package with the sentence of its `__init__` that says what lives there. Written by `python -m tools.source_map`
(`make generate`); a test keeps it in step with the tree. [DESIGN.md](DESIGN.md) has the paths through the packages,
[GLOSSARY.md](GLOSSARY.md) Kafka's names.
"""

# The order in which to read them: lowest layer first, then what is built on it.
ORDER = (
    "core", "config", "wire", "net", "storage", "cluster", "security", "replication", "coordinator", "controller",
    "client", "broker", "testing", "cli",
)  # fmt: skip


def first_paragraph(package: Path) -> str:
    """As it stands in the docstring, joined to one line; "" where there is none."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def packages_under(package: Path) -> Iterator[Path]:
    """The package and all within it, each before its own parts."""
    yield package
    for child in sorted(package.iterdir()):
        if (child / "__init__.py").exists():
            yield from packages_under(child)


def _row(package: Path) -> str:
    name = package.relative_to(SOURCES).as_posix().removeprefix("braidlog/")
    return f"| `{name}/` | {first_paragraph(package)} |"


def _table(packages: Iterator[Path]) -> str:
    return "\n".join(["| package | what lives there |", "|---|---|", *map(_row, packages)])


def source_map() -> str:
    braidlog = SOURCES / "braidlog"
    found = {path.name for path in braidlog.iterdir() if (path / "__init__.py").exists()}
    names = [*(name for name in ORDER if name in found), *sorted(found - set(ORDER))]
    parts = [HEAD, "## braidlog", first_paragraph(braidlog)]
    for name in names:
        parts.append(f"### {name}")
        parts.append(_table(packages_under(braidlog / name)))
    parts.append("## pyspark_braidlog")
    parts.append(_table(packages_under(SOURCES / "pyspark_braidlog")))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    PAGE.write_text(source_map(), encoding="utf-8")


if __name__ == "__main__":
    main()
