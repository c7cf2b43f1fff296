"""The end of a process that Spark hangs up on, as it does when a query is stopped: without a word.

PySpark takes it for an error, tries to report it over the very connection that is gone, fails, and prints both failures
to standard error, which is the user's terminal. All else that goes wrong is still told.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import SimpleNamespace
from typing import Final

_STREAM_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
DAEMON: Final = "pyspark.daemon"
_HUNG_UP: Final = (EOFError, BrokenPipeError, ConnectionResetError)


def end_planner_if_hung_up() -> None:
    """In the process that plans for a query, when its reader is stopped, which PySpark does whatever the reason."""
    if program() == _STREAM_PLANNER and isinstance(sys.exc_info()[1], _HUNG_UP):
        sys.stderr.flush()
        os._exit(0)


def expect_hang_up() -> None:
    """It is the daemon's code around ours that prints the traceback, so it gets another way to print one."""
    if program() == DAEMON:
        vars(sys.modules["__main__"])["traceback"] = SimpleNamespace(
            print_exc=_print_exception, format_exc=traceback.format_exc
        )


def _print_exception() -> None:
    if not isinstance(sys.exc_info()[1], _HUNG_UP):
        traceback.print_exc()


def program() -> str | None:
    """The module that this process was started to run."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return None if spec is None else spec.name
