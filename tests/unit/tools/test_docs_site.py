"""The site's hook: links as a page of the site needs them, and a place for every page."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest
from tools.docs_site import OUTSIDE, ROOT, page_of, site_links, with_directories


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("README.md", "[a](docs/CLI.md)", "[a](CLI.md)"),
        ("README.md", "![a](docs/images/broker.svg)", "![a](images/broker.svg)"),
        ("README.md", "[a](docs/BENCHMARKS.md#start-up)", "[a](BENCHMARKS.md#start-up)"),
        ("README.md", "[a](deploy/README.md) [b](CONTRIBUTING.md)", "[a](deploy.md) [b](CONTRIBUTING.md)"),
        ("README.md", "[a](docs/spark/)", "[a](spark/examples.md)"),
        ("docs/OPERATIONS.md", "[a](../deploy/README.md)", "[a](deploy.md)"),
        ("docs/spark/examples.md", "[`a`](../../src/pyspark_braidlog/java.py)", "`a`"),
        ("docs/spark/sink.md", "[a](source.md#columns) [b](../CLI.md)", "[a](source.md#columns) [b](../CLI.md)"),
        ("docs/adr/client-engine.md", "[a](#here) [b](https://example.org)", "[a](#here) [b](https://example.org)"),
        ("README.md", "```md\n[a](docs/CLI.md)\n```\n", "```md\n[a](docs/CLI.md)\n```\n"),
    ],
)
def test_links(source: str, text: str, expected: str) -> None:
    assert site_links(text, source) == expected


def test_where_a_file_is_on_the_site() -> None:
    assert page_of("README.md") == "index.md"
    assert page_of("docs/client/admin.md") == "client/admin.md"
    assert page_of("src/braidlog/__init__.py") is None


def test_every_page_has_its_place_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page for page in pages if f" {posixpath.dirname(page)}\n" not in navigation]
    missing = [page for page in [*pages, *OUTSIDE.values()] if f" {page}\n" not in navigation]
    assert missing == []


def test_a_directory_in_the_navigation_stands_for_its_pages(tmp_path: Path) -> None:
    (tmp_path / "adr").mkdir()
    for name in ("b.md", "a.md", "picture.svg"):
        (tmp_path / "adr" / name).touch()
    navigation = [{"Home": "index.md"}, {"Inside": ["DESIGN.md", {"Decisions": "adr"}]}]
    assert with_directories(navigation, tmp_path) == [
        {"Home": "index.md"},
        {"Inside": ["DESIGN.md", {"Decisions": ["adr/a.md", "adr/b.md"]}]},
    ]
