"""A broker for as long as an example runs: `braidlog serve` on a free port, with data that goes when it does."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from braidlog.core.errors import UserError

_READY: Final = re.compile(rb"ready on \w+://(\S+:\d+)[^\n]*\n")
_START_S: Final = 30.0
_STOP_S: Final = 20.0

# What suits one broker that lives for a minute: internal topics of one partition, no metrics port that another process
# may have, and a cleaner that looks often.
_SETTINGS: Final = {
    "braidlog.http.listen": "",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
}

# The broker stops when its guard's standard input ends, which it does however we end, be it by SIGKILL.
_GUARD: Final = '"$@" </dev/null & broker=$!; exec >/dev/null; cat; kill -TERM $broker 2>/dev/null; wait $broker'


@contextmanager
def own_broker(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start a broker and yield its `host:port`; it is stopped, and its data removed, at the end."""
    with tempfile.TemporaryDirectory(prefix="braidlog-example-", ignore_cleanup_errors=True) as place:
        log_path = Path(place) / "broker.log"
        with log_path.open("wb") as log:
            guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *_command(place, {**_SETTINGS, **(settings or {})})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(),
                # Ctrl-C is for us: what uses the broker stops first.
                start_new_session=True,
            )
        try:
            assert guard.stdout is not None
            yield _wait_until_ready(guard.stdout, log_path)
        finally:
            _stop(guard)


def _command(place: str, settings: Mapping[str, str]) -> list[str]:
    command = [sys.executable, "-m", "braidlog", "serve", "--data", f"{place}/data", "--listen", "127.0.0.1:0"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return command


def _environment() -> dict[str, str]:
    """Without settings that were meant for another broker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BRAIDLOG_", "KAFKA_"))}
    if "BRAIDLOG_PURE" in os.environ:
        kept["BRAIDLOG_PURE"] = os.environ["BRAIDLOG_PURE"]
    return kept


def _wait_until_ready(stdout: IO[bytes], log_path: Path) -> str:
    deadline = time.monotonic() + _START_S
    said = b""
    while True:
        readable, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(stdout.fileno(), 4096) if readable else b""
        if not piece:
            last_lines = "\n".join(log_path.read_text(errors="replace").splitlines()[-20:])
            raise UserError(f"no broker could be started; give one with --bootstrap HOST:PORT. It said:\n{last_lines}")
        said += piece
        found = _READY.search(said)
        if found is not None:
            return found[1].decode()


def _stop(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    assert guard.stdout is not None
    guard.stdin.close()
    try:
        guard.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        # The guard leads a session of its own: its number is also that of the group the broker is in.
        os.killpg(guard.pid, 9)
        guard.wait()
    finally:
        guard.stdout.close()
