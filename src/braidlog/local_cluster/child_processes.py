"""What processes that we start have in common: they end with us, and leave an exit code and a log behind."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

_SET_PARENT_DEATH_SIGNAL: Final = 1
# Looked up before any fork; elsewhere than on Linux there is no such thing.
_PRCTL: Final = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
# Of a log; a line that matters stands near its end.
_TAIL_BYTES: Final = 256 * 1024


class Machine(NamedTuple):
    """Where a process runs: a test gives each its own network (`nsenter --net=…`), and with that its own address."""

    host: str = "127.0.0.1"
    # Programs that come before the command, and become it: its process id is theirs.
    prefix: Sequence[str] = ()


THIS_MACHINE: Final = Machine()


def kill_with_parent() -> None:
    """In the child, before its program: whoever started it may be killed, and must not leave it behind."""
    if _PRCTL is not None:
        _PRCTL(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def exit_text(code: int) -> str:
    """How a process ended, as `subprocess` tells it: `exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def last_lines(log: Path, count: int) -> str:
    """Of a file that may be long; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-count:])
