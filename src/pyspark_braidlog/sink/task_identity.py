"""The identity of a write: one task of one batch of one query, from the task context.

Spark's Python hands over no number of tasks, so that a task cannot know how many others there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyspark import TaskContext

from braidlog.core.errors import UserError

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
# Streams run their jobs in a group of the run's id, which is another after each restart.
_RUN: Final = "spark.jobGroup.id"
PREFIX: Final = "braidlog-spark-sink."


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    query: str
    batch: int
    task: int
    # "" where it is not known.
    run: str

    @classmethod
    def current(cls) -> TaskIdentity:
        context = TaskContext.get()
        if context is None:
            raise UserError("exactly-once delivery runs in tasks of Spark only: there is no task context here")
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise UserError(
                "delivery=exactly-once needs the ids of a streaming query and its batch, and Spark gave this task "
                "none: use writeStream, write within foreachBatch (not over Spark Connect, which does not hand the ids "
                "on), or set the option delivery to at-least-once"
            )
        return cls(query, int(batch), context.partitionId(), _run(context.getLocalProperty(_RUN)))

    def name(self, sink_name: str) -> str:
        """The transactional id, and the group that holds the marker: the same for every attempt and every batch."""
        return f"{names_begin(self.query, sink_name)}{self.task}"


def _run(group: str | None) -> str:
    """A group that was set within foreachBatch has another name, and may have it again after a restart."""
    try:
        return str(UUID(group or ""))
    except ValueError:
        return ""


def names_begin(query: str, sink_name: str) -> str:
    """What the names of all tasks of a query's sink begin with; a number follows."""
    return f"{PREFIX}{query}.{sink_name}." if sink_name else f"{PREFIX}{query}."
