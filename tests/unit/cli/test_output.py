from __future__ import annotations

import json

import pytest

from braidlog.cli.output import Progress, report, show, show_one


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
