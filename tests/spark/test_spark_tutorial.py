"""The tutorial for Spark teams, followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tutorial import TUTORIALS, follow


# Six starts of Spark, one after the other; what each of them does has tests of its own.
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    follow(TUTORIALS / "spark-team.md", tmp_path)
