"""`braidlog pipeline replay`: plan, show, and only with --execute write another checkpoint."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from braidlog.cli import reset_plan
from braidlog.cli.options import INT64_MAX, connect
from braidlog.cli.output import remark, show
from braidlog.cli.reset_plan import Change, ResetTarget
from braidlog.cli.topic_selection import TopicSelection, bounds_of, moment
from braidlog.client.admin.admin import admin_over
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from pyspark_braidlog.jobs.checkpoint import Checkpoint, Positions, find_checkpoints, read_checkpoint
from pyspark_braidlog.jobs.replay import Replay, execute, plan_replay
from pyspark_braidlog.jobs.run_lock import RunLock

# A query that wrote so short a time ago is likely to be running.
_QUIET_S: Final = 60.0
_COLUMNS: Final = ("topic", "partition", "current_offset", "new_offset")


def run(options: argparse.Namespace) -> int:
    checkpoint = _checkpoint(Path(options.checkpoint))
    _check_stopped(checkpoint, force=options.force or not options.execute)
    standing = chosen(checkpoint, options.topic, options.source)
    target = _target(options)
    with connect(options) as cluster:
        at_ms = target.number if target.kind == reset_plan.TO_TIME else None
        bounds = bounds_of(admin_over(cluster), standing, at_ms)
    if target.kind == reset_plan.TO_TIME:
        remark(f"the time meant is {moment(target.number)}")
    changes, notes = reset_plan.plan_for(str(checkpoint.path), target, standing, bounds, {})
    new = {TopicPartition(change.topic, change.partition): change.new_offset for change in changes}
    replay = plan_replay(checkpoint, new, drop_state=options.drop_state, source_name=options.source)
    for note in (*notes, *replay.notes):
        remark(note)
    backup = _execute(replay) if options.execute else None
    _show(changes, options.output)
    if backup is None:
        remark("nothing was changed; --execute does it")
    else:
        remark(f"the query reads on from there at its next start; the old checkpoint is kept as {backup}")
    return 0


def _execute(replay: Replay) -> Path:
    backup = execute(replay)
    # Who wrote last was this program, which is at its end: another replay need not be forced.
    lock = RunLock(replay.checkpoint.path)
    if lock.take():
        lock.release()
    return backup


def _checkpoint(path: Path) -> Checkpoint:
    found = find_checkpoints(path)
    if len(found) > 1:
        raise UserError(f"{path} has several checkpoints below it: name one of {', '.join(map(str, found[:5]))}")
    return read_checkpoint(found[0])


def _check_stopped(checkpoint: Checkpoint, *, force: bool) -> None:
    lock = RunLock(checkpoint.path)
    holder = lock.holder()
    if holder is not None:
        raise UserError(f"the query is running ({holder}): stop it first")
    newest = max((each.stat().st_mtime for each in (checkpoint.path / "offsets").iterdir()), default=0.0)
    released = lock.released_at_s()
    if released is not None and released >= newest:
        # `pipeline run` was the last to write, and has stopped the query.
        return
    age = time.time() - newest
    if age < _QUIET_S and not force:
        raise UserError(
            f"the query wrote to its checkpoint {max(age, 0.0):.0f} s ago and may be running: stop it first; if it "
            "is stopped, say --force"
        )


def chosen(checkpoint: Checkpoint, choices: Sequence[TopicSelection], source: str | None = None) -> Positions:
    """Where the partitions meant stand now."""
    by_source = checkpoint.by_source()
    if not by_source:
        raise UserError(f"the query of {checkpoint.path} reads no topics, or has read nothing yet")
    if source is not None and source not in by_source:
        names = sorted(name for name in by_source if name is not None)
        names_text = f"it has {', '.join(names)}" if names else "its sources have no names"
        raise UserError(f"the query of {checkpoint.path} has no source {source} that reads topics: {names_text}")
    standing = checkpoint.positions if source is None else by_source[source]
    if not choices:
        return standing
    found: Positions = {}
    for choice in choices:
        own = {place: offset for place, offset in standing.items() if place.topic == choice.topic}
        if not own:
            topics = sorted({place.topic for place in standing})
            raise UserError(f"the query does not read topic {choice.topic}; it reads {', '.join(topics)}")
        for place, offset in own.items():
            if choice.partitions is None or place.partition in choice.partitions:
                found[place] = offset
        missing = [each for each in choice.partitions or () if TopicPartition(choice.topic, each) not in own]
        if missing:
            raise UserError(f"the query does not read partition {missing[0]} of topic {choice.topic}")
    return found


def _target(options: argparse.Namespace) -> ResetTarget:
    if options.to_earliest:
        return ResetTarget(reset_plan.TO_EARLIEST)
    if options.to_latest:
        return ResetTarget(reset_plan.TO_LATEST)
    if options.to_offset is not None:
        return ResetTarget(reset_plan.TO_OFFSET, options.to_offset)
    moment_ms = options.to_datetime
    if moment_ms is None:
        moment_ms = int(time.time() * 1000) - options.by_duration
    if not 0 <= moment_ms <= INT64_MAX:
        raise UserError("that time is before 1970 or too far away; --to-earliest means the first record that there is")
    return ResetTarget(reset_plan.TO_TIME, moment_ms)


def _show(changes: Sequence[Change], output: str) -> None:
    rows = [{name: value for name, value in change._asdict().items() if name != "group"} for change in changes]
    show(rows, output, _COLUMNS)
