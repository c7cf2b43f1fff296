"""What a terminal shows of a run, and what is said when it ends."""

from __future__ import annotations

import io
import sys

import pytest

from braidlog.cli.records.progress import RecordProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal; from within the test, since pytest puts its own in place when one begins."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


def test_records_and_rates_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    progress = RecordProgress("written")
    progress.add(1200, 3_400_000)
    progress.show()
    assert "1,200 records written, 3.4 MB in " in terminal.getvalue()
    assert "records/s" in terminal.getvalue()
    assert "MB/s)" in terminal.getvalue()
    progress.conclude()
    assert terminal.getvalue().splitlines()[-1].lstrip("\r ").startswith("braidlog: 1,200 records written")


def test_nothing_is_shown_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    progress = RecordProgress("read")
    progress.add(1, 1)
    progress.show()
    progress.conclude()
    assert capsys.readouterr().err == ""
    progress.conclude(interrupted=True)
    assert capsys.readouterr().err.startswith("braidlog: interrupted: 1 record read, 0.0 MB in ")


def test_output_on_the_same_terminal_is_not_spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(sys, "stdout", Terminal())
    progress = RecordProgress("read", beside_output=True)
    progress.add(1, 1)
    progress.show()
    progress.conclude()
    assert terminal.getvalue() == ""
