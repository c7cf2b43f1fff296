"""Checks that a task has received all of its rows, and that its executor did not die half-way.

Spark sends a task's rows over a socket as an Arrow stream. Where the executor dies, or the task is killed, the socket
is closed; and a stream that just ends reads like one that is complete. Only after a complete one Spark says so by four
more bytes, which its worker reads once the task is done. Whoever commits has to look for them first: half a batch with
its marker could never be mended.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

from pyspark.serializers import SpecialLengths

from braidlog.core.errors import BraidlogError, UserError
from pyspark_braidlog.worker_process import worker_input

_END: Final = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)


class TaskInput(Protocol):
    """A buffered reader of the executor's socket."""

    def peek(self, size: int = 0, /) -> bytes: ...


class IncompleteInput(BraidlogError):
    """The executor went away before it had sent all rows."""


def task_input() -> TaskInput:
    """The input of the worker that runs this task; call it within the task."""
    found = worker_input()
    if found is not None:
        return cast(TaskInput, found)
    raise UserError(
        "this PySpark runs its workers in a way that the sink does not know, so that it could not tell a complete "
        "batch from one that was cut: use PySpark 4.3, or set the option delivery to at-least-once"
    )


def check_complete(task: TaskInput) -> None:
    """After the last row, and before the commit."""
    # Waits for a byte at least; of what comes after complete rows none is different from the end's.
    seen = task.peek(len(_END))[: len(_END)]
    if seen != _END[: len(seen)] or not seen:
        raise IncompleteInput("the executor went away before it had sent all rows of this task; nothing is committed")
