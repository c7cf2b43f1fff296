"""Parsing, exit codes and the one line that says what went wrong."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from braidlog.cli.program import NOUNS, Command, build_parser, main, run
from braidlog.cli.records.offset_range import offset_range
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidConfigError, UnknownServerError


def usage_error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ((), "say what to do"),
        (("--nonsense",), "unrecognized arguments"),
        (("topic",), "invalid choice"),
        (("topics",), "ACTION"),
        (("topics", "create"), "TOPIC"),
        (("topics", "create", "x", "--partitions", "0"), "a positive whole number"),
        (("topics", "create", "x", "--part", "1"), "unrecognized arguments"),
        (("topics", "create", "list", "x", "y"), "unrecognized arguments"),
        (("configs", "describe"), "one of the arguments"),
        (("configs", "describe", "--topic", "x", "--broker", "1"), "not allowed with"),
        (("consume", "x", "--offset", "soon"), "none of earliest, latest"),
        (("consume", "x", "--format", "%z"), "no field"),
        (("consume", "x", "--request-timeout", "-1"), "positive number of seconds"),
        (("produce", "x", "--acks", "2"), "invalid choice"),
        (("produce", "x", "--timestamp", "soon"), "ISO 8601"),
        (("completion", "csh"), "invalid choice"),
    ],
)
def test_what_is_not_understood(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reported: str) -> None:
    line = usage_error(capsys, *words)
    assert reported in line
    assert line.endswith("--help")


@pytest.mark.parametrize("words", [(), *((noun,) for noun in NOUNS)])
def test_help_of_everything(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(" ".join(("usage: braidlog", *words)))
    if not words:
        assert all(f"    {noun}" in out for noun in NOUNS)
        assert all(len(line) <= 120 for line in out.splitlines())


def test_every_option_has_help() -> None:
    def check(parser: argparse.ArgumentParser) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for below in action.choices.values():
                    check(below)
            elif action.option_strings:
                assert action.help, f"{parser.prog} {action.option_strings[0]}"

    check(build_parser())


@pytest.mark.parametrize("text", ["-3", "-10:", "-10:-2", "end-3"])
def test_what_lies_before_the_end_is_no_option(text: str) -> None:
    assert build_parser("consume").parse_args(["consume", "t", "--offset", text]).offset == offset_range(text)


def test_help_imports_no_command_and_a_command_no_other() -> None:
    code = (
        "import sys; from braidlog.cli.program import build_parser; build_parser({noun!r});"
        "print([name for name in sys.modules if name.startswith('braidlog.')])"
    )
    modules = {}
    for noun in ("", "version"):
        command = [sys.executable, "-c", code.format(noun=noun)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        modules[noun] = done.stdout
    assert "braidlog.wire" not in modules[""]
    for heavy in ("braidlog.client", "braidlog.wire", "braidlog.storage", "braidlog.broker"):
        assert heavy not in modules["version"]


def failing(problem: BaseException) -> Command:
    def command(options: argparse.Namespace) -> int:
        raise problem

    return command


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (UserError("no such thing; try another"), "braidlog: no such thing; try another"),
        (InvalidConfigError("bad\n  value"), "braidlog: bad value [INVALID_CONFIG]"),
        (UnknownServerError(), "braidlog: the broker refused [UNKNOWN_SERVER_ERROR]"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "braidlog: /x: No such file or directory"),
    ],
)
def test_failures_are_one_line_and_code_1(capsys: pytest.CaptureFixture[str], problem: Exception, line: str) -> None:
    assert run(failing(problem), argparse.Namespace()) == 1
    assert capsys.readouterr().err == line + "\n"


def test_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing(KeyboardInterrupt()), argparse.Namespace()) == 130
    assert capsys.readouterr().err == ""


def test_the_end_of_a_process_does_what_was_registered_for_it() -> None:
    code = (
        "import atexit, sys, threading, time; from braidlog.cli.program import leave;"
        "atexit.register(print, 'registered'); sys.stdout.write('buffered ');"
        "threading.Thread(target=lambda: (time.sleep(0.05), sys.stdout.write('thread '))).start(); leave(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "buffered thread registered\n", "")
