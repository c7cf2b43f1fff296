"""The Python process of Spark's in which a task runs, and what in it costs a small batch more than its rows do.

- Workers are reused, and after every task their daemon collects garbage among all of their objects. With PyArrow,
  PySpark and a client imported that is tens of milliseconds of a core, for every worker that a batch uses. What was
  imported never becomes garbage, so it is taken out of the collector's sight.
- Over TCP the executor writes what a task is, and then its rows, which its socket holds back until the former is
  acknowledged (Nagle's algorithm); and this side, with nothing to say yet, delays that by 40 ms. What Spark unpickles
  between the two acknowledges at once. Unix domain sockets, which `spark_session` chooses, have no such wait.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from types import FrameType
from typing import IO, Any, Final

from pyspark_braidlog.hang_up import DAEMON, expect_hang_up, program

# What PySpark's worker calls the file that it reads from.
_INPUT: Final = "infile"

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
    """Of what arrived on a TCP connection: say so now. A wait saved at most, so nothing fails with it."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    try:
        with socket.socket(fileno=os.dup(source.fileno())) as same:
            if same.family in (socket.AF_INET, socket.AF_INET6):
                same.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    except OSError:
        # No socket, one that is about to be closed, of which whoever reads it next is told, or a file that does not
        # say which it is: a process that plans talks over both directions in one file.
        return


def freeze_imports() -> None:
    """When a task is done: freeze what is alive, if something was imported since the last time.

    In processes of Spark's daemon alone: a user's program is left as it is.
    """
    global _modules_frozen
    if len(sys.modules) == _modules_frozen or program() != DAEMON:
        return
    # Or what is garbage by now would be kept for good.
    gc.collect()
    gc.freeze()
    _modules_frozen = len(sys.modules)
