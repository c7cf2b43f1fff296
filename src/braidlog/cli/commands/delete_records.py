"""`braidlog delete-records`: move the start of partitions; plan, show, and only with --execute do it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from braidlog.cli.options import (
    add_connection,
    add_output,
    connect,
    offset_number,
    partition_number,
    path_name,
    shortened,
    timestamp_ms,
)
from braidlog.cli.output import remark, remark_failure, show
from braidlog.cli.reset_plan import Bounds
from braidlog.cli.topic_selection import TopicSelection, bounds_of, moment, selected_partitions
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

_COLUMNS: Final = ("topic", "partition", "earliest", "latest", "new_earliest", "records")

_DESCRIPTION: Final = """\
Delete the records before an offset, for good: they cannot be brought back. Without --execute only the plan is shown.
"""
_EPILOG: Final = """\
TOPIC:PARTITION:OFFSET deletes what lies before the offset; OFFSET may be `end`, for all that is there now. TOPIC and
TOPIC:PARTITION stand for whole topics and partitions, and need --before TIME or --all. A broker deletes records in
whole segments, in its own time; what lies before the new start is no longer shown to anybody at once.

examples:
  braidlog delete-records orders:0:1200 orders:1:end            shows what would happen
  braidlog delete-records orders:0:1200 orders:1:end --execute
  braidlog delete-records orders --before 2024-05-01T00:00:00Z --execute
  braidlog delete-records --offset-json-file offsets.json --execute
"""


class DeletionTarget(NamedTuple):
    """Of a topic all partitions, or one; `offset` is None where it was not said, `END` for the end."""

    topic: str
    partition: int | None = None
    offset: int | None = None


END: Final = -1

Wanted = Mapping[TopicPartition, int | None]


class Deletion(NamedTuple):
    topic: str
    partition: int
    earliest: int
    latest: int
    new_earliest: int
    records: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "targets", nargs="*", metavar="TOPIC", type=target, help="TOPIC:PARTITION:OFFSET, see below; repeatable"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--before", metavar="TIME", type=timestamp_ms, help="where no offset is given: what is older than this"
    )
    where.add_argument("--all", action="store_true", help="where no offset is given: all that is there now")
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        type=path_name,
        help="targets in the file format of kafka-delete-records; - is standard input",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--execute", action="store_true", help="do it")
    how.add_argument("--dry-run", action="store_true", help="only show it (the default)")
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def target(text: str) -> DeletionTarget:
    """The type of TOPIC[:PARTITION[:OFFSET]]; a colon is never part of a topic's name."""
    topic, *numbers = text.split(":")
    if not topic or len(numbers) > 2:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is none of TOPIC, TOPIC:PARTITION, TOPIC:PARTITION:OFFSET")
    if not numbers:
        return DeletionTarget(topic)
    partition = partition_number(numbers[0])
    if len(numbers) == 1:
        return DeletionTarget(topic, partition)
    return DeletionTarget(topic, partition, END if numbers[1] == "end" else offset_number(numbers[1]))


def run(options: argparse.Namespace) -> int:
    targets = [*options.targets, *_from_file(options.offset_json_file)]
    if not targets:
        raise UserError("say what to delete: TOPIC:PARTITION:OFFSET, TOPIC with --before or --all, or a file")
    open_ended = [each for each in targets if each.offset is None]
    if open_ended and options.before is None and not options.all:
        raise UserError(f"say how much of topic {open_ended[0].topic}: TOPIC:PARTITION:OFFSET, --before TIME or --all")
    with connect(options) as cluster:
        admin = admin_over(cluster)
        wanted = _wanted(cluster, targets)
        deletions = plan(wanted, bounds_of(admin, wanted, options.before))
        if options.before is not None:
            remark(f"the time meant is {moment(options.before)}")
        failed = _execute(admin, deletions) if options.execute else 0
    show([each._asdict() for each in deletions], options.output, _COLUMNS)
    if not options.execute:
        remark("nothing was deleted; --execute does it, and it cannot be undone")
    return 1 if failed else 0


def plan(wanted: Wanted, bounds: Mapping[TopicPartition, Bounds]) -> list[Deletion]:
    """What each partition would lose."""
    deletions: list[Deletion] = []
    for place, offset in wanted.items():
        start, end, at_time = bounds[place]
        if offset is None:
            # Without a time all are meant, and where no record is as young as the time all are older. The first that is
            # may have come after the end was asked for.
            offset = min(at_time, end) if at_time >= 0 else end
        elif offset == END:
            offset = end
        if offset > end:
            raise UserError(f"{place} ends at offset {end}, before {offset}; nothing was deleted")
        new = max(offset, start)
        deletions.append(Deletion(place.topic, place.partition, start, end, new, new - start))
    return deletions


def _wanted(cluster: ClusterConnection, targets: Sequence[DeletionTarget]) -> Wanted:
    """Every partition once; one that is named twice with different offsets is a mistake."""
    wanted: dict[TopicPartition, int | None] = {}
    for each in targets:
        choice = TopicSelection(each.topic, None if each.partition is None else (each.partition,))
        for place in selected_partitions(cluster, [choice]):
            if place in wanted and wanted[place] != each.offset:
                raise UserError(f"{place} is named twice, with different offsets; nothing was deleted")
            wanted[place] = each.offset
    return dict(sorted(wanted.items()))


def _execute(records: Admin, deletions: Sequence[Deletion]) -> int:
    """How many partitions refused."""
    before = {TopicPartition(each.topic, each.partition): each.new_earliest for each in deletions if each.records}
    if not before:
        return 0
    problems = records.delete_records(before).errors
    for problem in problems.values():
        # The others were done all the same, so each is reported.
        remark_failure(problem)
    return len(problems)


def _from_file(name: str | None) -> list[DeletionTarget]:
    """`{"partitions": [{"topic": "orders", "partition": 0, "offset": 1200}], "version": 1}`; offset -1 is the end."""
    if name is None:
        return []
    try:
        if name == "-":
            content = json.load(sys.stdin)
        else:
            with open(name, encoding="utf-8") as file:
                content = json.load(file)
        rows: list[dict[str, Any]] = content["partitions"]
        return [_from_row(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, argparse.ArgumentTypeError) as problem:
        raise UserError(
            f"{name} is not what kafka-delete-records takes ({type(problem).__name__}: {problem}); write "
            '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1200}]}'
        ) from problem


def _from_row(row: Mapping[str, Any]) -> DeletionTarget:
    offset = row["offset"]
    if not isinstance(row["topic"], str) or not row["topic"]:
        raise ValueError("a topic is a text")
    return DeletionTarget(
        row["topic"], partition_number(str(row["partition"])), END if offset == END else offset_number(str(offset))
    )
