"""The link checker: which links it follows, how it finds anchors, and what it says of a broken one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.links import anchor_of, broken_links

PAGES = ("README.md", "docs/**/*.md")


def broken(tree: Path, **pages: str) -> list[str]:
    for name, text in pages.items():
        path = tree / ("README.md" if name == "readme" else f"docs/{name}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(link) for link in broken_links(tree, PAGES)]


def test_a_link_to_a_missing_file_is_reported_with_its_line(tmp_path: Path) -> None:
    (found,) = broken(tmp_path, readme="# Title\n\nSee [the page](docs/missing.md).\n")
    assert found == "README.md:3: docs/missing.md: no such file"


def test_links_are_relative_to_their_page(tmp_path: Path) -> None:
    assert broken(tmp_path, readme="[a](docs/a.md) [docs](docs/)", a="[back](../README.md)") == []
    (found,) = broken(tmp_path, a="[wrong](docs/a.md)")
    assert found.startswith("docs/a.md:1:")


def test_a_link_may_not_leave_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "outside.md").write_text("# Outside\n")
    (found,) = broken(tree, readme="[out](../outside.md)")
    assert "no such file" in found


def test_anchors_are_those_of_headings(tmp_path: Path) -> None:
    page = "# Start-up\n\n## What's `new`, and old?\n\n## Twice\n\n## Twice\n\n## Named {#own-id}\n"
    text = "[1](#start-up) [2](#whats-new-and-old) [3](#twice) [4](#twice-1) [5](#own-id)\n"
    assert broken(tmp_path, a=page + text, readme="[a](docs/a.md#start-up)") == []
    found = broken(tmp_path, readme="[a](docs/a.md#start_up) [b](#nowhere)\n")
    assert found == [
        "README.md:1: docs/a.md#start_up: no heading of docs/a.md has that anchor",
        "README.md:1: #nowhere: no heading of this page has that anchor",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```md\n[a](missing.md)\n```\n",
        "~~~\n# Not a heading\n[a](missing.md)\n~~~\n",
        "Write `[a](missing.md)` for a link.",
        "[a](https://example.org/missing.md) [b](mailto:a@example.org)",
    ],
)
def test_code_and_other_sites_are_not_followed(tmp_path: Path, text: str) -> None:
    assert broken(tmp_path, readme=text) == []


def test_code_as_the_text_of_a_link_and_images_are_followed(tmp_path: Path) -> None:
    text = '[`Code`](missing.py)\n![picture](picture.svg "title")\n<img src="other.svg">\n'
    assert [line.split(":")[1] for line in broken(tmp_path, readme=text)] == ["1", "2", "3"]


def test_headings_in_code_blocks_give_no_anchors(tmp_path: Path) -> None:
    (found,) = broken(tmp_path, readme="```sh\n# Comment\n```\n[a](#comment)\n")
    assert found.startswith("README.md:4:")


def test_the_anchor_of_a_heading_is_githubs() -> None:
    assert anchor_of("One record at a time, waited for") == "one-record-at-a-time-waited-for"
    assert anchor_of("The path of a commit, a join") == "the-path-of-a-commit-a-join"
    assert anchor_of("[Linked](x.md) – über `x_y`") == "linked--über-x_y"


def test_the_documents_of_this_tree_have_no_broken_links() -> None:
    assert [str(link) for link in broken_links()] == []
