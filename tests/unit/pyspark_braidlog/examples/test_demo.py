"""A line of progress: rewritten in place for who watches, seldom where nobody does."""

from __future__ import annotations

import io

import pytest

from pyspark_braidlog.examples.demo import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_sees_one_line_that_changes() -> None:
    out, time = Terminal(), Time()
    line = ProgressLine(out, time)
    line.show("ten of twenty")
    line.show("too soon")
    time.now += 1
    line.show("eleven")
    line.end()
    assert out.getvalue() == "\rten of twenty\releven       \releven\n"


def test_elsewhere_a_line_every_five_seconds_and_the_last() -> None:
    out, time = io.StringIO(), Time()
    line = ProgressLine(out, time)
    for second in range(12):
        line.show(f"{second}")
        time.now += 1
    line.end()
    assert out.getvalue() == "5\n10\n11\n"


def test_continuous_integration_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert not ProgressLine(Terminal(), Time()).is_watched


def test_nothing_shown_is_nothing_written() -> None:
    out = Terminal()
    ProgressLine(out, Time()).end()
    assert out.getvalue() == ""
