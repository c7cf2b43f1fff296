"""The demo as one runs it: a program that starts a broker and Spark, shows its result, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.eventually import eventually

TIMEOUT_S = 240


@contextmanager
def _demo(place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, as a shell would start it; everything in that group ends with the test."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "CI")}
    program = subprocess.Popen(
        [sys.executable, "-m", "pyspark_braidlog.examples.demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment | {"TMPDIR": str(place)},
        start_new_session=True,
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def _is_listening(bootstrap: str) -> bool:
    host, port = bootstrap.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def _left_in_group(leader: int) -> list[str]:
    """The command lines of what still runs in a process group."""
    left = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            command = status.with_name("cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            left.append(command)
    return left


def test_the_demo(tmp_path: Path) -> None:
    with _demo(tmp_path, "--events", "1200") as program:
        shown, _ = program.communicate(timeout=TIMEOUT_S)
        assert program.returncode == 0, shown
        assert "The query was stopped in the middle" in shown
        assert "Each order that was sent has come out once, none is missing." in shown
        lags = re.findall(r"^demo-pricing +demo-orders +\d +(\d+) +(\d+) +(\d+)", shown, re.MULTILINE)
        assert len(lags) == 4, shown
        assert sum(int(current) for current, _, _ in lags) == 1200
        assert all(current == end and lag == "0" for current, end, lag in lags)
        bootstrap = re.search(r"broker at (\S+:\d+)", shown)
        assert bootstrap is not None
        assert not _is_listening(bootstrap[1])
        assert not list(tmp_path.glob("braidlog-*")), "its directories should be gone"
        eventually(lambda: not _left_in_group(program.pid))


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    with _demo(tmp_path) as program:
        assert program.stdout is not None
        shown = ""
        while "are on their way" not in shown:
            line = program.stdout.readline()
            assert line, shown
            shown += line
        bootstrap = re.search(r"broker at (\S+:\d+)", shown)
        assert bootstrap is not None
        assert _is_listening(bootstrap[1])
        # As a terminal does: to all of the foreground group.
        os.killpg(program.pid, signal.SIGINT)
        rest, _ = program.communicate(timeout=TIMEOUT_S)
        assert program.returncode == 130, shown + rest
        assert "Traceback" not in rest
        assert not _is_listening(bootstrap[1])
        assert not list(tmp_path.glob("braidlog-*")), "its directories should be gone"
        eventually(lambda: not _left_in_group(program.pid))
