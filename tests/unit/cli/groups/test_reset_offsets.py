"""What is refused before a broker is asked; tests/e2e/test_cli_groups.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cli.groups import reset_offsets as groups_reset
from braidlog.cli.program import main

NOWHERE = ("--bootstrap", "127.0.0.1:1")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["groups", "reset-offsets", "g", *words, *NOWHERE]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to-earliest"], "say which partitions"),
        (["--to-earliest", "--topic", "t", "--all-topics"], "leave out --topic"),
        (["--by-duration", "P40000D", "--all-topics"], "before 1970"),
        (["--to-latest", "--all-topics", "--export", "--output", "json"], "--export prints CSV"),
        (["--from-file", "/nowhere/at/all.csv"], "/nowhere/at/all.csv"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in refused(capsys, *words)


def test_a_file_names_its_partitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("t,0,5\n")
    assert "names the partitions" in refused(capsys, "--from-file", str(plan), "--all-topics")
    plan.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text; give a CSV file" in refused(capsys, "--from-file", str(plan))


def test_an_offset_is_one_way_to_say_where_to(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["groups", "reset-offsets", "g", "--to-earliest", "--to-latest", "--all-topics"])
    assert "not allowed with" in capsys.readouterr().err
    assert "plan, show" in (groups_reset.__doc__ or "")
