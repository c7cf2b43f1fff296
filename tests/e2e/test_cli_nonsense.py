"""Commands where nobody thought of them: no terminal, a reader that leaves, a full disk, streams that are closed."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 120.0

# With what each says of a thing that is not there; {topic} is one that is.
MISSING = [
    ("topics describe nope", "nope"),
    ("topics offsets nope", "nope"),
    ("topics alter nope --partitions 3", "nope"),
    ("topics delete nope", "nope"),
    ("configs describe --topic nope", "nope"),
    ("configs alter --topic nope --set retention.ms=1", "nope"),
    ("consume nope", "nope"),
    ("groups describe nope", "nope"),
    ("groups delete nope", "nope"),
    ("groups reset-offsets g --topic nope --to-earliest", "nope"),
    ("delete-records nope:0:1", "nope"),
    ("log-dirs --topic nope", "nope"),
    ("transactions describe nope", "nope"),
    ("transactions producers --topic nope", "nope"),
    ("transactions abort --transactional-id nope --yes", "nope"),
    ("perf consume nope", "nope"),
    ("profiles show nope", "nope"),
    ("topics list --profile nope", "nope"),
    ("topics list --command-config /nope", "/nope"),
    ("log dump /nope", "/nope"),
    ("log verify /nope", "/nope"),
    ("log rebuild-index /nope", "/nope"),
    ("log export orders /nope/archive --data /nope", "/nope has no coordination store"),
    ("log import /nope --check", "/nope is no whole archive"),
    ("cluster dump /nope/dump --data /nope", "/nope is no directory"),
    ("cluster restore /nope --check", "/nope is no file"),
    ("pipeline status /nope", "/nope"),
    ("pipeline replay /nope --to-earliest", "/nope"),
    ("produce {topic} --file /nope", "/nope"),
    ("produce {topic} --value-file /nope", "/nope"),
]
PRINTING = [
    "topics list",
    "topics describe {topic}",
    "topics offsets {topic}",
    "configs describe --topic {topic} --all --docs",
    "consume {topic} --offset earliest --exit-at-end",
    "consume {topic} --offset earliest --exit-at-end --output json",
    "groups list",
    "brokers",
    "log-dirs",
    "top --interval 0.1",
    "doctor",
    "completion bash",
    "version",
    "topics list --help",
    "serve --help",
]


@pytest.fixture
def filled(cli: Any, topic: str) -> str:
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, stdin="".join(f"record {number} über\n" for number in range(3000))).succeeded()
    return topic


def all_of(cli: Any, commands: list[str], topic: str, shell: str, **environment: str) -> Iterator[tuple[str, Any]]:
    """Each command as `$@` of a shell's line, several at a time."""

    def run(command: str) -> Any:
        words = command.format(topic=topic).split()
        return subprocess.run(
            ["bash", "-c", shell, "bash", *cli.program, *words],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**cli.environment, **environment},
        )

    with ThreadPoolExecutor(4) as pool:
        yield from zip(commands, pool.map(run, commands), strict=True)


def is_in_words(reported: str) -> bool:
    return not any(word in reported for word in ("Traceback", "Exception ignored", "Error in sys"))


def test_what_is_not_there(cli: Any, filled: str, tmp_path: Path) -> None:
    told_of = dict(MISSING)
    home = str(tmp_path)
    for command, done in all_of(cli, list(told_of), filled, '"$@" </dev/null', XDG_CONFIG_HOME=home):
        assert done.returncode == 1, f"{command}: {done.stderr}"
        assert is_in_words(done.stderr), f"{command}: {done.stderr}"
        assert told_of[command] in done.stderr.splitlines()[-1], f"{command}: {done.stderr}"


@pytest.mark.parametrize(
    ("shell", "codes"),
    [
        ('"$@" | head -1; exit ${PIPESTATUS[0]}', {0}),
        ('"$@" <&- >&- 2>&-', {0}),
        ('"$@" >/dev/full', {0, 1}),
    ],
)
def test_streams_that_take_or_give_nothing(cli: Any, filled: str, shell: str, codes: set[int]) -> None:
    for command, done in all_of(cli, PRINTING, filled, shell):
        assert done.returncode in codes, f"{command}: {done.stderr}"
        assert is_in_words(done.stderr), f"{command}: {done.stderr}"


def test_a_full_disk_takes_no_output(cli: Any, filled: str) -> None:
    ((_, done),) = all_of(cli, ["topics list"], filled, '"$@" >/dev/full')
    assert (done.returncode, done.stderr) == (1, "braidlog: cannot write the output: No space left on device\n")


def test_a_terminal_without_the_signs_that_we_use(cli: Any, filled: str) -> None:
    for command, done in all_of(cli, PRINTING, filled, '"$@"', PYTHONIOENCODING="ascii", LC_ALL="C"):
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert is_in_words(done.stderr), f"{command}: {done.stderr}"


def test_what_asks_first_does_not_hang_where_nobody_can_answer(cli: Any) -> None:
    words = "transactions abort --topic nope --partition 0 --start-offset 0"
    for command, done in all_of(cli, [words], "", '"$@" <&-'):
        assert done.returncode == 1, command
        assert is_in_words(done.stderr)


def test_interrupted_at_any_moment(cli: Any) -> None:
    """Also while modules are imported; before that it is Python's own affair."""
    script = (
        "import os, signal, sys, threading, importlib.abc\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'braidlog.cli.program':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        # Uncompiled, the package puts a finder of its own first.
        "import braidlog\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from braidlog.__main__ import main\n"
        "sys.exit(main(['topics', 'list']))\n"
    )
    command = [cli.program[0], "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=cli.environment)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_while_a_broker_is_silent(cli_of: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*cli_of(None).program, "topics", "list", "--bootstrap", address]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            connection, _ = silent.accept()
            with connection:
                # It has connected and asked, so that it is past its imports.
                connection.recv(1)
                running.send_signal(signal.SIGINT)
                _, reported = running.communicate(timeout=TIMEOUT_S)
    assert (running.returncode, reported) == (130, "")


def test_a_terminal_shows_progress_and_a_pipe_does_not(cli: Any, filled: str) -> None:
    environment = {**cli.environment, "TERM": "xterm"}
    environment.pop("CI", None)
    command = [*cli.program, "perf", "consume", filled]
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment, timeout=TIMEOUT_S, check=True
        )
        os.set_blocking(ours, False)
        assert b"records read" in os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    quiet = subprocess.run(command, capture_output=True, env=environment, timeout=TIMEOUT_S, check=True)
    assert quiet.stderr == b""
