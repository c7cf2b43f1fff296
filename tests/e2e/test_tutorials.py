"""The tutorials for test authors and Python teams, top to bottom; tests/spark and tests/cluster have the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tutorial import TUTORIALS, follow


@pytest.mark.parametrize("name", ["test-author", "python-team"])
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    follow(TUTORIALS / f"{name}.md", tmp_path)


def test_every_tutorial_is_followed_by_a_test() -> None:
    assert {page.stem for page in TUTORIALS.glob("*.md")} == {"test-author", "python-team", "spark-team", "cluster"}
