"""The tutorial of a cluster, followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tutorial import TUTORIALS, follow


# Two clusters, one after the other, and a broker that has to be missed and to come back.
@pytest.mark.long
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    follow(TUTORIALS / "cluster.md", tmp_path)
