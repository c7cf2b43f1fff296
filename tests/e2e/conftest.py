"""The command line as a person or a script runs it: a process of its own, against a running broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from support.broker import Broker

# No single command takes long; one that hangs is a failure.
TIMEOUT_S = 60.0


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    def succeeded(self) -> Outcome:
        assert self.code == 0, f"exit code {self.code}: {self.err}"
        assert "Traceback" not in self.err
        return self

    def failed(self, reported: str, code: int = 1) -> Outcome:
        """Failed as promised: the code, and one line on standard error that says so."""
        assert self.code == code, f"exit code {self.code}: {self.out}{self.err}"
        assert reported in self.err.splitlines()[-1], self.err
        assert "Traceback" not in self.err
        return self


class Command:
    """`braidlog …` with the broker's address in the environment."""

    def __init__(self, bootstrap: str | None) -> None:
        self.environment = dict(os.environ)
        for name in ("BRAIDLOG_BOOTSTRAP", "BRAIDLOG_PROFILE", "BRAIDLOG_TARGET"):
            self.environment.pop(name, None)
        if bootstrap is not None:
            self.environment["BRAIDLOG_BOOTSTRAP"] = bootstrap

    @property
    def program(self) -> list[str]:
        return [sys.executable, "-m", "braidlog"]

    def bytes(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.program, *words],
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=TIMEOUT_S,
            check=False,
        )

    def __call__(self, *words: str, stdin: str = "") -> Outcome:
        done = self.bytes(*words, stdin=stdin.encode())
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def cli(broker: Broker) -> Command:
    """Commands against the shared broker."""
    return Command(broker.bootstrap)


@pytest.fixture
def cli_of() -> Callable[[Broker | None], Command]:
    """Commands against a broker of the test's own, or none."""
    return lambda broker: Command(None if broker is None else broker.bootstrap)
