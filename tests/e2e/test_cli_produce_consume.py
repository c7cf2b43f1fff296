"""Produce and consume as clients of their own: groups, transactions, formats, files, terminals, and a lot of lines."""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker

START = ("--offset", "earliest", "--exit-at-end")
LINES = 100_000


def test_formats_go_in_and_come_out(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    formats = ("--key-format", "hex", "--value-format", "base64")
    cli("produce", topic, *formats, "--key-separator", "=", stdin="00ff=/wA=\n6b=eyJhIjogMX0=\n").succeeded()
    assert cli("consume", topic, *START, *formats, "--format", "%k %v").succeeded().lines == [
        "00ff /wA=",
        "6b eyJhIjogMX0=",
    ]
    records = cli("consume", topic, *START, "--output", "json", "--value-format", "json").succeeded().json_lines
    assert [each["value"] for each in records] == [{"base64": "/wA="}, {"json": {"a": 1}}]
    cli("produce", topic, "--value-format", "json", "--value", "{").failed("--value: the value is not JSON")
    cli("produce", topic, "--key-format", "hex", "--key-separator", ":", stdin="0g:x\n").failed(
        "line 1: the key is not hexadecimal"
    )


def test_files_and_delimiters(cli: Any, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic).succeeded()
    first, second, whole = tmp_path / "first", tmp_path / "second", tmp_path / "whole"
    first.write_text("one;two")
    second.write_text("three;")
    whole.write_bytes(b"\x00\n\xff")
    cli("produce", topic, "--delimiter", ";", "--file", str(first), "--file", "-", stdin="in between;").succeeded()
    cli("produce", topic, "--delimiter", ";", "--file", str(second)).succeeded()
    cli("produce", topic, "--value-file", str(whole)).succeeded()
    printed = cli.bytes("consume", topic, *START, "--delimiter", "|").stdout
    assert printed == b"one|two|in between|three|\x00\n\xff|"
    cli("produce", topic, "--file", str(tmp_path / "missing")).failed("No such file")


@pytest.mark.parametrize("setting", ["max.request.size", "buffer.memory", "batch.size"])
def test_lines_fit_what_the_producer_may_send(cli: Any, topic: str, setting: str) -> None:
    cli("topics", "create", topic).succeeded()
    lines = "".join(f"line {number}\n" for number in range(50_000))
    produced = cli("produce", topic, "-X", f"{setting}=60000", stdin=lines).succeeded()
    assert produced.out.startswith("50000 records written")
    assert cli("consume", topic, "--offset", "earliest", "--exit-at-end").succeeded().out == lines


def test_a_group_goes_on_where_it_was(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, stdin="a\nb\nc\n").succeeded()
    group = ("--group", f"g-{topic}", "--timeout", "30")
    first = cli("consume", topic, *group, "--offset", "earliest", "--max-messages", "2").succeeded()
    assert first.lines == ["a", "b"]
    second = cli("consume", topic, *group, "--max-messages", "1").succeeded()
    assert second.lines == ["c"]
    described = cli("groups", "describe", f"g-{topic}", "--output", "json").succeeded().json
    assert [row["current_offset"] for row in described] == [3]
    cli("produce", topic, stdin="d\n").succeeded()
    until_end = cli("consume", topic, *group, "--until-end").succeeded()
    assert until_end.lines == ["d"]
    simple = cli("consume", topic, *group, "--partition", "0", "--exit-at-end").succeeded()
    assert simple.lines == []


def test_mistakes_about_groups(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("consume", topic, "--offset", "committed").failed("say which with --group")
    cli("consume", topic, "--group", "g", "--offset", "5").failed("reset-offsets")


def test_the_last_records_of_the_end(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, stdin="a\nb\nc\n").succeeded()
    assert cli("consume", topic, "--offset", "end-2", "--exit-at-end").succeeded().lines == ["b", "c"]
    assert cli("consume", topic, "--offset", "end-9", "--exit-at-end").succeeded().lines == ["a", "b", "c"]


def test_all_or_nothing(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    identity = ("--transactional-id", f"id-{topic}")
    cli("produce", topic, *identity, stdin="a\nb\n").succeeded()
    cli("produce", topic, *identity, "--input", "json", stdin='{"value": "c"}\nnot json\n').failed("line 2: not JSON")
    committed = ("--isolation", "read_committed")
    assert cli("consume", topic, *START, *committed).succeeded().lines == ["a", "b"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_consumer_says_how_far_it_came(cli: Any, topic: str, number: signal.Signals) -> None:
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, stdin="a\nb\n").succeeded()
    command = [*cli.program, "consume", topic, "--offset", "earliest", "--group", f"g-{topic}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment, text=True
    ) as reading:
        assert reading.stdout is not None
        assert [reading.stdout.readline(), reading.stdout.readline()] == ["a\n", "b\n"]
        reading.send_signal(number)
        out, err = reading.communicate(timeout=60)
    assert reading.returncode == 128 + number
    assert out == ""
    assert "interrupted: 2 records read" in err
    assert "Traceback" not in err
    described = cli("groups", "describe", f"g-{topic}", "--output", "json").succeeded().json
    assert [row["consumer_id"] for row in described] == [None], "it has left"
    again = cli("consume", topic, "--group", f"g-{topic}", "--until-end", "--timeout", "30").succeeded()
    assert again.lines == [], "what was printed was committed"


def test_a_consumer_stopped_in_mid_stream_has_committed_exactly_what_it_printed(cli: Any, topic: str) -> None:
    lines = b"".join(b"line %06d\n" % number for number in range(LINES))
    cli("topics", "create", topic, "--partitions", "2").succeeded()
    assert cli.bytes("produce", topic, stdin=lines).returncode == 0
    command = [*cli.program, "consume", topic, "--offset", "earliest", "--group", f"g-{topic}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        seen = reading.stdout.readline()
        # It writes more than a pipe holds, so it is in the middle of that now.
        reading.send_signal(signal.SIGTERM)
        printed = (seen + reading.stdout.read()).splitlines()
        err = reading.stderr.read()
        assert reading.wait(60) == 143, err
    assert 0 < len(printed) < LINES
    described = cli("groups", "describe", f"g-{topic}", "--output", "json").succeeded().json
    assert sum(row["current_offset"] or 0 for row in described) == len(printed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_producer_sends_what_it_has_read(cli: Any, topic: str, number: signal.Signals) -> None:
    cli("topics", "create", topic).succeeded()
    command = [*cli.program, "produce", topic]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment
    ) as typing:
        assert typing.stdin is not None
        typing.stdin.write(b"hello\n")
        typing.stdin.flush()
        read = ("consume", topic, "--offset", "earliest", "--max-messages", "1", "--timeout", "30")
        assert cli(*read).succeeded().out == "hello\n"
        typing.send_signal(number)
        _, err = typing.communicate(timeout=60)
    assert typing.returncode == 128 + number
    assert b"interrupted: 1 record written" in err
    assert b"Traceback" not in err


def test_a_producer_stopped_in_mid_stream_has_written_what_it_read(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    reading, writing = os.pipe()
    command = [*cli.program, "produce", topic]

    def pour() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb") as out:
            for number in itertools.count():
                out.write(b"line %08d\n" % number)

    pouring = threading.Thread(target=pour)
    with subprocess.Popen(
        command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment, text=True
    ) as producing:
        os.close(reading)
        pouring.start()
        first = cli("consume", topic, "--offset", "earliest", "--max-messages", "1", "--timeout", "30").succeeded()
        assert first.lines == ["line 00000000"]
        producing.send_signal(signal.SIGTERM)
        out, err = producing.communicate(timeout=60)
    pouring.join(60)
    assert (producing.returncode, out) == (143, ""), err
    reported = re.search(r"interrupted: ([\d,]+) records written", err)
    assert reported is not None, err
    written = int(reported[1].replace(",", ""))
    last = cli("consume", topic, "--offset", "-1", "--exit-at-end", "--format", "%o %v").succeeded()
    assert last.lines == [f"{written - 1} line {written - 1:08d}"]


def test_progress_is_for_terminals_only(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    quiet = cli("produce", topic, stdin="x\n" * 2000).succeeded()
    assert quiet.err == ""
    environment = {**cli.environment, "TERM": "xterm"}
    environment.pop("CI", None)
    shown = bytearray()
    own, theirs = pty.openpty()

    def watch() -> None:
        try:
            while piece := os.read(own, 4096):
                shown.extend(piece)
        except OSError:
            pass  # the other end is closed

    watching = threading.Thread(target=watch)
    watching.start()
    command = [*cli.program, "produce", topic]
    done = subprocess.run(
        command, input=b"x" * 100 + b"\n" + b"y\n" * 20_000, stdout=subprocess.PIPE, stderr=theirs, env=environment,
        check=False, timeout=60,
    )  # fmt: skip
    os.close(theirs)
    watching.join(30)
    os.close(own)
    assert done.returncode == 0
    assert done.stdout == f"20001 records written to {topic}\n".encode()
    assert b"20,001 records written" in shown
    assert b"records/s" in shown
    assert b"MB/s" in shown


def test_many_lines_through_a_pipe(cli: Any, broker: Broker, topic: str, record_property: Any) -> None:
    """The figures are properties of the test and printed (-s), kcat's beside them where it is installed."""
    lines = b"".join(b"line %06d of a log that somebody wants elsewhere\n" % number for number in range(LINES))
    cli("topics", "create", topic).succeeded()
    figures: dict[str, float] = {}

    def timed(name: str, command: list[str], stdin: bytes = b"") -> bytes:
        began = time.perf_counter()
        done = subprocess.run(command, input=stdin, capture_output=True, env=cli.environment, check=False, timeout=120)
        figures[name] = LINES / (time.perf_counter() - began)
        assert done.returncode == 0, done.stderr
        return done.stdout

    timed("braidlog produce", [*cli.program, "produce", topic], lines)
    assert timed("braidlog consume", [*cli.program, "consume", topic, *START]) == lines
    kcat = shutil.which("kcat")
    if kcat is not None:
        theirs = f"{topic}-kcat"
        cli("topics", "create", theirs).succeeded()
        timed("kcat -P", [kcat, "-b", broker.bootstrap, "-P", "-t", theirs, "-X", "acks=all"], lines)
        read = [kcat, "-b", broker.bootstrap, "-C", "-t", theirs, "-o", "beginning", "-e", "-q"]
        assert timed("kcat -C", read) == lines
    for name, rate in figures.items():
        record_property(name, f"{rate:,.0f} lines/s")
        print(f"{name}: {rate:,.0f} lines/s, start-up included")


@pytest.mark.parametrize("option", [("--group", "seen-enough"), ()])
def test_a_reader_that_has_seen_enough_ends_it_quietly(cli: Any, topic: str, option: tuple[str, ...]) -> None:
    cli("produce", topic, stdin="line\n" * 50_000).succeeded()
    words = " ".join([*cli.program, "consume", topic, *START, *option])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -n 1"],
        capture_output=True,
        env=cli.environment,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"line\n", b"")
