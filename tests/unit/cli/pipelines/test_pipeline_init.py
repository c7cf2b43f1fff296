from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cli.program import main


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert main(["pipeline", "init", str(tmp_path)]) == 1
    assert "README.md is there already, and nothing is overwritten" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("topic", ["", "a b", "ä"])
def test_topics_with_impossible_names(tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "init", str(tmp_path / "x"), "--topic", topic]) == 1
    assert "is no name for a topic" in capsys.readouterr().err
