"""The Python processes that Spark starts for planning and for tasks: what costs a small batch more than its rows do,
and a silent end when Spark closes the connection.

- Workers are reused, and after every task their daemon collects garbage among all of their objects. With PyArrow,
  PySpark and a client imported that is tens of milliseconds of a core, for every worker that a batch uses. What was
  imported never becomes garbage, so it is taken out of the collector's sight.
- Over TCP the executor writes what a task is, and then its rows, which its socket holds back until the former is
  acknowledged (Nagle's algorithm); and this side, with nothing to say yet, delays that by 40 ms. What Spark unpickles
  between the two acknowledges at once. Unix domain sockets, which `spark_session` chooses, have no such wait.
- When a query is stopped, Spark hangs up. PySpark takes it for an error, tries to report it over the very connection
  that is gone, fails, and prints both failures to standard error, which is the user's terminal. All other
  errors are still printed.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import traceback
from types import FrameType, SimpleNamespace
from typing import IO, Any, Final

# What PySpark's worker calls the file that it reads from.
_INPUT: Final = "infile"
_STREAM_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_DAEMON: Final = "pyspark.daemon"
_HUNG_UP: Final = (EOFError, BrokenPipeError, ConnectionResetError)

_modules_frozen = 0


def worker_input() -> Any:
    """The buffered reader of the executor's socket, if a task of Spark's is below on the stack; else None."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and _INPUT in frame.f_code.co_varnames:
            found = frame.f_locals.get(_INPUT)
            if hasattr(found, "peek"):
                return found
        frame = frame.f_back
    return None


class SentToWorkers:
    """Base of what Spark pickles for the processes that PySpark's daemon forks: in a task, it is unpickled before the
    task's rows are read."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        expect_hang_up()
        source = worker_input()
        if source is not None:
            acknowledge(source)


def acknowledge(source: IO[bytes]) -> None:
    """Acknowledge at once what arrived on a TCP connection. This only saves a wait, so errors are ignored."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    try:
        with socket.socket(fileno=os.dup(source.fileno())) as same:
            if same.family in (socket.AF_INET, socket.AF_INET6):
                same.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    except OSError:
        # No socket, one that is about to be closed, which the next read reports, or a file that does not
        # say which it is: a process that plans talks over both directions in one file.
        return


def freeze_imports() -> None:
    """When a task is done: freeze what is alive, if something was imported since the last time.

    In processes of Spark's daemon alone: a user's program is left as it is.
    """
    global _modules_frozen
    if len(sys.modules) == _modules_frozen or _program() != _DAEMON:
        return
    # Or what is garbage by now would be kept for good.
    gc.collect()
    gc.freeze()
    _modules_frozen = len(sys.modules)


def end_planner_if_hung_up() -> None:
    """In the process that plans for a query, when its reader is stopped, which PySpark does whatever the reason."""
    if _program() == _STREAM_PLANNER and isinstance(sys.exc_info()[1], _HUNG_UP):
        sys.stderr.flush()
        os._exit(0)


def expect_hang_up() -> None:
    """It is the daemon's code around ours that prints the traceback, so it gets another way to print one."""
    if _program() == _DAEMON:
        vars(sys.modules["__main__"])["traceback"] = SimpleNamespace(
            print_exc=_print_exception, format_exc=traceback.format_exc
        )


def _print_exception() -> None:
    if not isinstance(sys.exc_info()[1], _HUNG_UP):
        traceback.print_exc()


def _program() -> str | None:
    """The module that this process was started to run."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return None if spec is None else spec.name
