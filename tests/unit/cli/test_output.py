from __future__ import annotations

import io
import json
import sys

import pytest

from braidlog.cli.output import Progress, confirm, report, show, show_one
from braidlog.core.errors import UserError


def test_a_table_lines_up(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "orders", "partition_count": 3, "internal": False}, {"topic": "a", "replicas": [1, 2]}]
    show(rows, "table", ("topic", "partition_count", "internal", "replicas"))
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC   PARTITION-COUNT  INTERNAL  REPLICAS",
        "orders  3                no        -",
        "a       -                -         1,2",
    ]


def test_json_keeps_keys_and_types(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": None, "b": [1], "ü": True}]
    show(rows, "json", ("a",))
    assert json.loads(capsys.readouterr().out) == rows


def test_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    show_one({"name": "x", "log_size": 5}, "table")
    assert capsys.readouterr().out == "name      x\nlog size  5\n"
    show_one({"name": "x"}, "json")
    assert json.loads(capsys.readouterr().out) == {"name": "x"}


def test_a_report_is_a_sentence_or_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    report("topic x created", {"topic": "x"}, "table")
    report("topic x created", {"topic": "x"}, "json")
    assert capsys.readouterr().out == 'topic x created\n{"topic": "x"}\n'


def test_progress_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.show("half")
    progress.clear()
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal_leaves_no_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    progress = Progress()
    progress.show("half")
    progress.clear()
    assert capsys.readouterr().err == "\rhalf\r    \r"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y\n", " YES \n"])
def test_a_person_agrees(answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    confirm("end it", False)
    captured = capsys.readouterr()
    assert captured.err == "This will end it. Go on? [y/N] "
    assert captured.out == ""


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yeah\n"])
def test_a_person_does_not(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    with pytest.raises(UserError, match="nothing was done"):
        confirm("end it", False)


def test_a_script_has_to_agree_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UserError, match="this would end it; add --yes to do it"):
        confirm("end it", False)
    confirm("end it", True)
