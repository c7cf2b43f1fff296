"""docs/source-map.md has every package of the tree with the sentence of its docstring."""

from __future__ import annotations

from pathlib import Path

from tools.source_map import PAGE, SOURCES, first_paragraph, packages_under, source_map


def test_the_page_is_in_step_with_the_tree() -> None:
    assert PAGE.read_text(encoding="utf-8") == source_map(), "run python -m tools.source_map"


def test_every_package_is_on_the_page_and_says_what_lives_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for root in (SOURCES / "braidlog", SOURCES / "pyspark_braidlog"):
        for package in packages_under(root):
            assert first_paragraph(package), f"{package}/__init__.py has no docstring"
            assert first_paragraph(package) in page


def test_a_docstring_is_cut_after_its_first_paragraph(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('"""One sentence\nover two lines.\n\nMore.\n"""\n')
    assert first_paragraph(tmp_path) == "One sentence over two lines."
    assert list(packages_under(tmp_path)) == [tmp_path]
