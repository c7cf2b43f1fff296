"""A newcomer's first ten minutes: a fresh clone, a fresh environment, and README's commands from the top.

They run as they stand there, but for the port, since 9092 may be taken. Spark's and `make test` run elsewhere.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools import build
from tools.peers.process import LoggedProcess

from support.broker import READY
from support.clean_venv import CleanVenv, clean_environment, fresh_tree, pip_cache, run
from support.eventually import eventually
from support.ports import lasting_port

# Where the cache does not help, it takes as long as compiling does on a busy machine.
pytestmark = [pytest.mark.install, pytest.mark.timeout(1200)]

HAS_COMPILER = build.why_uncompiled() is None
INSTALLING = "## Installing"
# Each is run by somebody else: make test runs this very test; Spark's are tests/spark, whose downloads take minutes.
RUN_ELSEWHERE = ("make test", "make demo", "pip install 'braidlog[spark]'")
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_tree(tmp_path_factory.mktemp("first") / "braidlog")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The lines of the shell blocks, without what is said beside them and without those that run elsewhere."""
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    found = [re.sub(r"\s+# .*", "", line).strip() for line in lines]
    return [line for line in found if line and line not in RUN_ELSEWHERE]


@contextmanager
def foreground(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Iterator[LoggedProcess]:
    """As in a terminal: Ctrl-C reaches the whole group. Nothing of it outlives the test."""
    with LoggedProcess(command[0], command, cwd=cwd, env=env, preexec=os.setsid) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


def press_ctrl_c(process: LoggedProcess) -> None:
    os.killpg(process.pid, signal.SIGINT)
    process.wait(PATIENCE_S)


def running_in(place: Path) -> list[str]:
    """The command lines of all processes whose current directory is there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            here = Path(os.readlink(entry / "cwd"))
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if here.is_relative_to(place) and words:
            found.append(words)
    return found


def test_readme_from_the_top(clone: Path, tmp_path: Path) -> None:
    top = (clone / "README.md").read_text().partition(INSTALLING)[0]
    first, *rest = commands(top)
    assert first == "make run"
    assert len(rest) >= 5
    program = next(block for block in blocks(top, "python") if block.startswith("from braidlog import"))
    port = lasting_port()
    # A machine on which nothing was ever compiled.
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = clean_environment(
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PIP_CACHE_DIR=pip_cache(),
        TMPDIR=str(scratch),
        PYTHONUNBUFFERED="1",
        BRAIDLOG_HTTP_LISTEN="",
    )
    with foreground([*first.split(), f"PORT={port}"], cwd=clone, env=environment) as broker:
        broker.wait_for_line(READY, timeout_s=PATIENCE_S)
        assert "running uncompiled, several times slower" in broker.log()
        if HAS_COMPILER:
            assert "compile in the background" in broker.log()
        client = {**environment, "BRAIDLOG_BOOTSTRAP": f"127.0.0.1:{port}"}
        said = {}
        for command in rest:
            said[command] = run(["bash", "-euo", "pipefail", "-c", command], cwd=clone, env=client)
            if command.startswith(".venv/bin/braidlog consume"):
                text = program.replace("127.0.0.1:9092", f"127.0.0.1:{port}")
                said["python"] = run([".venv/bin/python", "-c", text], cwd=clone, env=client)
        press_ctrl_c(broker)
        assert "stopped cleanly" in broker.log()
    assert "hello, log" in said[".venv/bin/braidlog consume greetings --offset earliest --max-messages 1"]
    assert "greetings" in said["python"]
    assert "readers" in said[".venv/bin/braidlog groups list"]
    assert "greetings" in said[".venv/bin/braidlog groups describe readers"]
    # The build in the background ended with the broker, and left nothing that a later start could take for a build.
    eventually(lambda: running_in(clone) + running_in(scratch) == [])
    assert list(scratch.glob("braidlog-*")) == []
    assert [path.name for path in (tmp_path / "cache").glob("braidlog/build/[!.]*")] == []


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler here")
def test_the_next_run_is_compiled(clone: Path) -> None:
    """Here the cache is this machine's, as it is after a build in the background has ended."""
    environment = clean_environment(PYTHONUNBUFFERED="1", BRAIDLOG_HTTP_LISTEN="")
    run(["make", "build"], cwd=clone, env=environment)
    run([".venv/bin/python", "-c", "from tools.build import remove_in_place as r; r()"], cwd=clone, env=environment)
    with foreground(["make", "run", f"PORT={lasting_port()}"], cwd=clone, env=environment) as broker:
        broker.wait_for_line(READY, timeout_s=PATIENCE_S)
        assert "compile" not in broker.log()
        reported = run([".venv/bin/braidlog", "version"], cwd=clone, env=environment)
        assert re.search(r"^compiled +yes$", reported, re.MULTILINE), reported
        press_ctrl_c(broker)


def test_installing_as_readme_says(clone: Path, tmp_path: Path) -> None:
    section = (clone / "README.md").read_text().partition(INSTALLING)[2].partition("\n## ")[0]
    install, version, serve = commands(section)
    assert install == "pip install ."
    venv = CleanVenv(tmp_path / "venv", has_pip=True)
    path = os.pathsep.join((str(venv.bin), os.environ["PATH"]))
    environment = clean_environment(PATH=path, PYTHONUNBUFFERED="1", BRAIDLOG_HTTP_LISTEN="")
    run(shlex.split(install), cwd=clone, env=environment)
    reported = run(shlex.split(version), cwd=tmp_path, env=environment)
    assert re.search(rf"^compiled +{'yes' if HAS_COMPILER else 'no'}$", reported, re.MULTILINE), reported
    port = lasting_port()
    with foreground(shlex.split(serve.replace(":9092", f":{port}")), cwd=tmp_path, env=environment) as broker:
        broker.wait_for_line(READY, timeout_s=PATIENCE_S)
        run(["braidlog", "topics", "list", "--bootstrap-server", f"127.0.0.1:{port}"], cwd=tmp_path, env=environment)
        press_ctrl_c(broker)
        assert broker.returncode == 0
    assert (tmp_path / "data" / "meta.properties").exists()
