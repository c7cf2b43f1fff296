"""The marker: which batch a task wrote last, committed in the same transaction as the rows.

It is the committed offset of a consumer group of the task's own, for a partition of a topic that it writes to:

    group     braidlog-spark-sink.<query id>.<task>
    offset    the batch
    metadata  {"batch":7,"rows":120,"keyBytes":960,"valueBytes":4711,"checksum":"09ab…","run":"<run id>","v":1}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from braidlog import TopicPartition
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.errors import UserError
from pyspark_braidlog.sink.fingerprint import Fingerprint
from pyspark_braidlog.sink.task_identity import TaskIdentity

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Marker:
    batch: int
    written: Fingerprint
    run: str

    def committed(self) -> OffsetAndMetadata:
        text = json.dumps(
            {
                "batch": self.batch,
                "rows": self.written.rows,
                "keyBytes": self.written.key_bytes,
                "valueBytes": self.written.value_bytes,
                "checksum": f"{self.written.checksum:016x}",
                "run": self.run,
                "v": _VERSION,
            },
            separators=(",", ":"),
        )
        return OffsetAndMetadata(self.batch, text)

    @classmethod
    def read(cls, group: str, committed: OffsetAndMetadata) -> Marker:
        try:
            fields = json.loads(committed.metadata)
            written = Fingerprint(
                int(fields["rows"]), int(fields["keyBytes"]), int(fields["valueBytes"]), int(fields["checksum"], 16)
            )
            marker = cls(int(fields["batch"]), written, str(fields["run"]))
            if fields["v"] != _VERSION or marker.batch != committed.offset:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"group {group} holds the sink's marker, but something else was committed there (offset "
                f"{committed.offset}), so that it is not known which batch was written last: delete the group if "
                "every batch that was written is in Spark's checkpoint too"
            ) from None
        return marker


class FoundMarker(NamedTuple):
    marker: Marker
    # Where it is, and will be.
    place: TopicPartition


def newest(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic: str | None = None
) -> FoundMarker | None:
    """The newest marker of the group, for one topic or for any: a query may be changed to write to another topic."""
    places = [place for place in offsets if topic is None or place.topic == topic]
    found = [FoundMarker(Marker.read(group, offsets[place]), place) for place in places]
    return max(found, key=lambda each: each.marker.batch, default=None)


class Step(Enum):
    # Nothing of this batch was committed by this task.
    WRITE = "write"
    # An earlier attempt committed all of it.
    SKIP = "skip"


def next_step(task: TaskIdentity, last: Marker | None) -> Step:
    if last is None or last.batch < task.batch:
        return Step.WRITE
    if last.batch == task.batch:
        return Step.SKIP
    raise UserError(
        f"task {task.task} of query {task.query} wrote batch {last.batch} already, but Spark is at batch {task.batch}: "
        "an old checkpoint was restored, or two drivers run on one checkpoint. Stop all but one, and go on from the "
        "newest checkpoint; or begin with a new checkpoint and startingOffsets, which is a new query"
    )


def check_same(task: TaskIdentity, before: Marker, now: Fingerprint) -> None:
    """Rows that are other ones now were partly written by this task before, or will be by another."""
    if before.written == now:
        return
    then = before.written
    raise UserError(
        f"batch {task.batch} was recomputed differently: task {task.task} wrote {then.rows} rows "
        f"({then.key_bytes + then.value_bytes} bytes) before it was run again, and now has {now.rows} rows "
        f"({now.key_bytes + now.value_bytes} bytes) that are not the same; nothing was written again. Exactly once "
        "needs a query that gives each task the same rows again: no rand(), uuid() or udf with a state of its own, and "
        "the same partitioning. If the rows that were written are good, set the option recomputed to keep for one run"
    )
