"""A project of Spark Declarative Pipelines, handed on to Spark's own program."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from braidlog.cli.options import pairs
from braidlog.cli.output import Progress
from braidlog.core.errors import UserError

_SPECS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
# What the program prints on the way: a time, and what a flow does.
_EVENT: Final = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: (?P<text>.+)$")
_GRACE_S: Final = 30.0


def run_project(path: Path, options: argparse.Namespace) -> int:
    from braidlog.cli.pipelines.pipeline_run import Stop

    spec = _spec(path)
    command, environment = command_of(spec, options)
    progress = Progress()
    stop = Stop()
    lines: list[str] = []
    with stop.listening():
        process = subprocess.Popen(
            command,
            cwd=spec.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C reaches us alone, and we stop it.
            start_new_session=True,
        )
        reader = threading.Thread(
            target=_read, args=(process, lines, progress, options.traceback), name="spark-pipelines"
        )
        reader.start()
        try:
            while process.poll() is None:
                if stop.is_over.wait(0.2):
                    _end(process)
        finally:
            if process.poll() is None:
                _end(process)
            reader.join()
            progress.clear()
    if stop.signal is not None:
        return stop.exit_code
    if process.returncode != 0:
        raise UserError(reason("".join(lines)))
    return 0


def command_of(spec: Path, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Spark's program with its words, and the environment that it needs."""
    from pyspark_braidlog.session import is_local, spark_environment

    if options.master and not is_local(options.master):
        raise UserError(
            "a declarative project runs on Spark Connect: start a server on the cluster "
            f"(sbin/start-connect-server.sh --master {options.master}) and give --remote sc://HOST:15002"
        )
    where = options.remote or options.master or "local[*]"
    environment = {**os.environ, **spark_environment(where, java=options.java)}
    conf = spec.parent / "conf"
    if "SPARK_CONF_DIR" not in environment and conf.is_dir():
        environment["SPARK_CONF_DIR"] = str(conf)
    found = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (str(Path(found.origin).parent) if found and found.origin else "")
    words = [str(Path(home) / "bin" / "spark-pipelines"), "run", "--spec", str(spec)]
    if options.remote or options.master:
        words += ["--remote", where]
    for name, value in pairs(options.conf, "--conf").items():
        words += ["--conf", f"{name}={value}"]
    return words, environment


def _spec(path: Path) -> Path:
    if path.is_file():
        return path.resolve()
    for name in _SPECS:
        if (path / name).is_file():
            return (path / name).resolve()
    raise UserError(f"{path} has no {_SPECS[0]}: give a Python file, or make a project with `braidlog pipeline init`")


def _read(process: subprocess.Popen[str], lines: list[str], progress: Progress, show_all: bool) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        event = _EVENT.match(line)
        if show_all:
            sys.stderr.write(line)
        elif event is not None:
            progress.show(event["text"][:120])


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def reason(output: str) -> str:
    """Why a run failed: what was said of the flow that failed, else the last words."""
    from pyspark_braidlog.errors import clear_text

    error_lines = re.findall(r"^Error: (.+?)(?=^\d{4}-\d\d-\d\d |^Traceback |\Z)", output, re.M | re.S)
    flows = re.findall(r"(?:Failed to resolve flow: |Flow )'([^']+)'(?: has FAILED|\.)", output)
    if error_lines:
        name = f"flow {flows[0]}: " if flows else ""
        return f"{name}{clear_text(error_lines[0])}"
    return clear_text(output) or "Spark's program failed and did not say why; --traceback shows all that it printed"
