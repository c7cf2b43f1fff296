"""What `braidlog top` refuses; tests/cluster/test_watching.py has it on a cluster and on a terminal."""

from __future__ import annotations

import pytest

from braidlog.cli.program import main


def test_a_cluster_that_does_not_answer_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--bootstrap", "127.0.0.1:1", "--request-timeout", "0.5"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no broker answers at 127.0.0.1:1" in said.err


@pytest.mark.parametrize("words", [["--interval", "0"], ["--interval", "soon"], ["--metrics", "nowhere"]])
def test_what_is_not_understood(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", *words])
    assert ended.value.code == 2
    assert words[1] in capsys.readouterr().err
