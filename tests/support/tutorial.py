"""Follows a tutorial from top to bottom, as a reader would, and compares what is printed with what the page shows.

A Python block whose first line is a comment with a file name is saved under that name. The lines of a shell block are
run one after the other; a `text` block after it has lines that they must print, `…` standing for anything. What the
reader leaves running in another terminal (`braidlog serve`, `braidlog cluster up`) runs in the background, on ports of
its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tools.peers.process import LoggedProcess

import braidlog

from .broker import READY
from .ports import lasting_port_range

TUTORIALS = Path(__file__).parent.parent.parent / "docs" / "tutorials"
FIRST_PORT: Final = 9092
PORTS: Final = 3
# Of one command; Spark starts slowly on a busy machine.
TIMEOUT_S: Final = 600

BACKGROUND: Final = ("braidlog serve", "braidlog cluster up")
# What either says last, once it is ready.
SETTLED: Final = rf"{READY}|Ctrl-C stops it"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# ([\w.]+)\n")


class Block(NamedTuple):
    line: int
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in _BLOCK.finditer(text)]


def follow(page: Path, place: Path) -> None:
    """Raises AssertionError with the page's line where it does not do as it says."""
    port = lasting_port_range(PORTS)
    bin_dir = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(braidlog.__file__).parent.parent),
        "BRAIDLOG_BOOTSTRAP": f"127.0.0.1:{port}",
        "BRAIDLOG_HTTP_LISTEN": "",
    }
    printed = ""
    with ExitStack() as running:
        for block in blocks_of(page):
            text = block.text
            for number in range(PORTS):
                text = text.replace(f"127.0.0.1:{FIRST_PORT + number}", f"127.0.0.1:{port + number}")
            where = f"{page.name}:{block.line}"
            if block.language == "python":
                name = _FILE_NAME.match(text)
                assert name, f"{where}: the first line does not name the file"
                (place / name[1]).write_text(text)
            elif block.language == "text":
                for line in text.splitlines():
                    pattern = ".*".join(re.escape(part) for part in line.split("…"))
                    assert re.search(pattern, printed), f"{where}: {line!r} was not printed, but:\n{printed}"
            elif block.language == "sh":
                printed = ""
                for command in text.splitlines():
                    if command.startswith("pip install"):
                        continue
                    if command.startswith("export "):
                        name, _, value = command.removeprefix("export ").partition("=")
                        environment[name] = value
                        continue
                    if command.startswith(BACKGROUND):
                        words = [sys.executable, "-m", *command.split()]
                        program = running.enter_context(LoggedProcess(command, words, cwd=place, env=environment))
                        program.wait_for_line(SETTLED)
                        printed += "\n".join(program.lines)
                        continue
                    printed += _run(command, where, place, environment)


def _run(command: str, where: str, place: Path, environment: dict[str, str]) -> str:
    # `braidlog` without an installed script, as everywhere in the tests.
    line = re.sub(r"(^|\(|until )braidlog ", rf"\1{sys.executable} -m braidlog ", command)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{where}: {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
