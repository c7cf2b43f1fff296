"""What the documents say of the tree is true: paths of tests, names of classes and packages, figures."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
SOURCES = ROOT / "src"
DOCS = ROOT / "docs"
# Files of others.
NOT_OURS = ("confluent/",)
CLASS = re.compile(r"`([A-Z]\w+)`")
TEST_PATH = re.compile(r"`(tests/[\w./*-]+|test_[\w*]+\.py)`")
PACKAGE = re.compile(r"`((?:[a-z_]+/)+)`")


def test_every_test_that_status_names_exists() -> None:
    missing = []
    for number, line in enumerate((DOCS / "STATUS.md").read_text(encoding="utf-8").splitlines(), 1):
        for name in TEST_PATH.findall(line):
            pattern = name if name.startswith("tests/") else f"tests/**/{name}"
            if not any(ROOT.glob(pattern.rstrip("/"))):
                missing.append(f"docs/STATUS.md:{number}: {name}")
    assert missing == []


def classes() -> set[str]:
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        found.update(re.findall(r"^(?:class|def) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def test_every_class_and_package_of_the_glossary_exists() -> None:
    known = classes()
    missing = []
    for number, line in enumerate((DOCS / "GLOSSARY.md").read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 5 or cells[1] in {"Kafka", "---"}:
            continue
        kafka, here, packages = cells[1:4]
        # "The same": then Kafka's own names are classes of the tree.
        names = kafka.split(", ") if here.startswith("the same") else CLASS.findall(here)
        missing += [f"docs/GLOSSARY.md:{number}: {name}" for name in names if re.sub(r" .*", "", name) not in known]
        folders = PACKAGE.findall(packages)
        assert folders, f"docs/GLOSSARY.md:{number}: no package"
        for folder in folders:
            if not (SOURCES / "braidlog" / folder / "__init__.py").exists():
                missing.append(f"docs/GLOSSARY.md:{number}: {folder}")
    assert missing == []


def test_every_module_that_design_and_decisions_name_exists() -> None:
    """`producer/sender` stands for a module `sender` somewhere below a package `producer`; so with packages."""
    modules = [path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py")]
    known = {f"/{name.removesuffix('.py').removesuffix('/__init__')}" for name in modules}
    missing = []
    for page in [DOCS / "DESIGN.md", *sorted(DOCS.glob("adr/*.md"))]:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)+)(?:/|\.py|\.\w+)?`", line):
                folder, _, module = name.rpartition("/")
                is_module = any(f"/{folder}/" in path and path.endswith(f"/{module}") for path in known)
                if not is_module and not any(ROOT.glob(f"{name}*")) and not name.startswith(NOT_OURS):
                    missing.append(f"{page.relative_to(ROOT)}:{number}: {name}")
    assert missing == []


def test_the_figures_of_readme_are_those_of_the_benchmarks() -> None:
    measured = (DOCS / "BENCHMARKS.md").read_text(encoding="utf-8")
    table = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- figures -->")[2].partition("<!-- end -->")[0]
    )
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| [")]
    assert len(rows) >= 10
    for cells in rows:
        what, ours, kafkas, ratio = (cell.strip() for cell in cells)
        section, label = re.fullmatch(r"\[([^\]]+)\]\([^)]+\): (.+)", what).groups()  # type: ignore[union-attr]
        part = measured.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        number, unit = ours.split(" ", 1)
        row = next((line for line in part.splitlines() if line.startswith(f"| {label} | {unit} |")), None)
        assert row is not None, f"BENCHMARKS.md has no row {label!r} under {section!r}"
        columns = [cell.strip().split(" ")[0] for cell in row.split("|")[3:6]]
        assert columns == [number, kafkas.split(" ")[0], ratio], f"{what}: the benchmarks have {columns}"


def test_large_figures_of_the_comparison_are_in_the_benchmarks() -> None:
    measured = (DOCS / "BENCHMARKS.md").read_text(encoding="utf-8")
    figures = re.findall(r"\d{1,3}(?:,\d{3})+", (DOCS / "comparison.md").read_text(encoding="utf-8"))
    assert len(figures) >= 10
    assert [figure for figure in figures if figure not in measured] == []
