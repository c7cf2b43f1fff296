"""A broker in a process of its own: the one that can be killed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from braidlog.testing.broker_instance import START_TIMEOUT_S, STOP_TIMEOUT_S, BrokerFailed

_READY: Final = re.compile(rb"ready on \S+:(\d+)")
# Variables with these prefixes would set something of the broker behind the test's back; these few are meant.
_SETTING_PREFIXES: Final = ("BRAIDLOG_", "KAFKA_")
_PASSED_ON: Final = frozenset(("BRAIDLOG_PURE", "BRAIDLOG_CRASH_AT"))


class BrokerProcess:
    """`log_path` takes what the broker says on standard error, over all of its lives."""

    def __init__(self, log_path: Path, name: str = "braidlog broker") -> None:
        self._log_path = log_path
        self._name = name
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise BrokerFailed(f"{self._name} is not running")
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self, settings: Mapping[str, str]) -> int:
        command = [sys.executable, "-m", "braidlog.testing.serve_until_eof"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with self._log_path.open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=_environment()
            )
        self._child = child
        assert child.stdout is not None
        try:
            return self._wait_until_ready(child.stdout)
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def _wait_until_ready(self, stdout: IO[bytes]) -> int:
        deadline = time.monotonic() + START_TIMEOUT_S
        said = b""
        while True:
            readable, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise BrokerFailed(f"{self._name} is not ready after {START_TIMEOUT_S:g} s:\n{self.log(40)}")
            piece = os.read(stdout.fileno(), 4096)
            if not piece:
                raise BrokerFailed(f"{self._name} did not start:\n{self.log(40)}")
            said += piece
            found = _READY.search(said)
            if found is not None and b"\n" in said[found.end() :]:
                return int(found[1])

    def stop(self) -> None:
        if self._child is None:
            return
        died = self._child.poll()
        code = self._end(signal.SIGTERM)
        if died is not None:
            raise BrokerFailed(f"{self._name} had ended with {died} before it was asked to stop:\n{self.log(40)}")
        if code != 0:
            raise BrokerFailed(f"{self._name} did not stop cleanly (exit status {code}):\n{self.log(40)}")

    def kill(self) -> None:
        if self._child is not None:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        child, self._child = self._child, None
        assert child is not None
        try:
            child.send_signal(number)
            return child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()
        finally:
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()

    def log(self, last: int) -> str:
        try:
            lines = self._log_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-last:])


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or not name.startswith(_SETTING_PREFIXES)
    }
    # The child finds the packages that this process has found, however that was set.
    kept["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return kept
