"""Reading again from an offset: a checkpoint that says so, and the old one beside it.

A query without state goes on with the next batch number and its own id. One more batch is written down, done and empty,
that ends where reading shall begin:

    offsets/41  … {"orders": {"0": 9000}}          before
    offsets/42  … {"orders": {"0": 100}}           new, with commits/42: batch 43 begins at 100

So sinks that remember batches by number (files, our exactly-once topics) take what comes for new; and if the query is
running after all, it fails at its next batch, since the number is taken, rather than writing an unplanned batch.

State belongs to what was read: with other input it would count twice. And Spark begins without state in batch 0 alone.
So a query with state gets a new checkpoint, with a new id, in which batch 0 is written down but not done and says where
the stream begins. Sinks that remember the query by its id take it for a new one; those that remember numbers alone
(files) have to be given a new place.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from pyspark_braidlog.jobs.checkpoint import Batch, Checkpoint, Positions, beginning, with_name, written_source


@dataclass(frozen=True, slots=True)
class Replay:
    """What will be written; `sources` are the lines of the batch, `number` is that batch's."""

    checkpoint: Checkpoint
    number: int
    sources: tuple[str, ...]
    # A new checkpoint with a new id, whose query begins without state.
    is_fresh: bool
    notes: tuple[str, ...] = ()


def plan_replay(
    checkpoint: Checkpoint, new: Mapping[TopicPartition, int], *, drop_state: bool, source_name: str | None = None
) -> Replay:
    """`new` has the partitions that move, of the source with that name or else of all; the others stay."""
    base = checkpoint.done or checkpoint.planned
    if base is None or checkpoint.planned is None:
        raise UserError(
            f"the query of {checkpoint.path} has read nothing yet: say where it begins with startingOffsets"
        )
    if checkpoint.has_state and not drop_state:
        raise UserError(
            f"the query of {checkpoint.path} keeps state, which what is read again would enter twice: with "
            "--drop-state it begins with none, so go back far enough for all that it has to know"
        )
    is_fresh = checkpoint.has_state or checkpoint.done is None
    lines: list[str] = []
    for source in base.sources:
        current = _standing(checkpoint, base, source_index=len(lines))
        if source.positions is None:
            if is_fresh and source.text != "-":
                raise UserError(
                    f"the query of {checkpoint.path} also reads from something that is no topic, which cannot be set "
                    "back together with it; give the query a new checkpointLocation and say startingOffsets"
                )
            lines.append(with_name(source, source.text))
            continue
        if is_fresh and not source.is_ours:
            raise UserError(
                f"the offsets in {checkpoint.path} are those of Spark's Kafka connector; give the query a new "
                "checkpointLocation and say startingOffsets"
            )
        moves = new if source_name in (None, source.name) else {}
        moved = {place: moves.get(place, offset) for place, offset in current.items()}
        moved |= {place: offset for place, offset in moves.items() if place.topic in {each.topic for each in current}}
        lines.append(written_source(source, moved, begins=is_fresh))
    return Replay(
        checkpoint,
        0 if is_fresh else checkpoint.planned.number + 1,
        tuple(lines),
        is_fresh,
        tuple(_notes(checkpoint, is_fresh)),
    )


def _standing(checkpoint: Checkpoint, base: Batch, source_index: int) -> Positions:
    source = base.sources[source_index]
    return beginning(source) if checkpoint.done is None else source.positions or {}


def _notes(checkpoint: Checkpoint, is_fresh: bool) -> list[str]:
    notes: list[str] = []
    if is_fresh and checkpoint.has_state:
        notes.append(
            "the query begins with empty state, a new id and batch 0: a sink that writes files skips batches it has in "
            "_spark_metadata, so give it a new directory"
        )
    elif checkpoint.planned and (checkpoint.done is None or checkpoint.planned.number > checkpoint.done.number):
        notes.append(
            f"batch {checkpoint.planned.number} was begun and not finished: what it has written already stays written"
        )
    return notes


def execute(replay: Replay, now: datetime | None = None) -> Path:
    """Do it; where the old checkpoint is kept."""
    now = now or datetime.now(UTC)
    path = replay.checkpoint.path
    backup = path.with_name(f"{path.name}.before-replay-{now:%Y%m%dT%H%M%S}")
    if backup.exists():
        raise UserError(f"{backup} is there already: wait a second, or move it away")
    metadata = _metadata(replay, round(now.timestamp() * 1000))
    assert replay.checkpoint.planned is not None
    batch = "\n".join((replay.checkpoint.planned.version, json.dumps(metadata, separators=(",", ":")), *replay.sources))
    if replay.is_fresh:
        _start_anew(path, backup, batch)
    else:
        shutil.copytree(path, backup, symlinks=True)
        _write(path / "offsets" / str(replay.number), batch)
        watermark = json.dumps({"nextBatchWatermarkMs": metadata["batchWatermarkMs"]}, separators=(",", ":"))
        _write(path / "commits" / str(replay.number), f"v1\n{watermark}")
    return backup


def _metadata(replay: Replay, now_ms: int) -> dict[str, object]:
    """Spark keeps settings that a query must not change here: they stay."""
    assert replay.checkpoint.planned is not None
    old = replay.checkpoint.planned.metadata
    watermark = 0 if replay.is_fresh else int(old.get("batchWatermarkMs", 0))
    return {"conf": {}, **old, "batchWatermarkMs": watermark, "batchTimestampMs": now_ms}


def _start_anew(path: Path, backup: Path, batch: str) -> None:
    new = path.with_name(f".{path.name}.new-{uuid.uuid4().hex[:8]}")
    (new / "offsets").mkdir(parents=True)
    (new / "commits").mkdir()
    _write(new / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    _write(new / "offsets" / "0", batch)
    path.rename(backup)
    new.rename(path)


def _write(path: Path, text: str) -> None:
    """Whole or not at all; the checksum that Hadoop may have left beside an older file of the name would not fit."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
