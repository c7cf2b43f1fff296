"""`braidlog groups reset-offsets`: plan, show, and only with --execute commit."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from typing import Final

from braidlog.cli import reset_plan
from braidlog.cli.groups.describe import named_groups
from braidlog.cli.options import INT64_MAX, connect, offset_number, timestamp_ms
from braidlog.cli.output import remark, remark_failure, show
from braidlog.cli.reset_plan import Change, FileOffsets, ResetTarget
from braidlog.cli.topic_selection import bounds_of, group_name, moment, selected_partitions, topic_selection
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.groups import GroupDescription
from braidlog.client.admin.results import Failure
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import GroupIdNotFoundError
from braidlog.core.types import TopicPartition

_COLUMNS: Final = ("group", "topic", "partition", "current_offset", "new_offset")

_DESCRIPTION: Final = """\
Set the committed offsets of groups without active members. Without --execute only the plan is shown.
An offset outside of what a partition holds is moved to its start or end, with a remark.
"""
_EPILOG: Final = """\
examples:
  braidlog groups reset-offsets billing --topic orders --to-earliest               shows what would happen
  braidlog groups reset-offsets billing --topic orders:0,2 --shift-by -100 --execute
  braidlog groups reset-offsets billing --all-topics --to-datetime 2024-05-01T12:00:00Z --execute
  braidlog groups reset-offsets billing --all-topics --to-current --export > saved.csv
  braidlog groups reset-offsets billing --from-file saved.csv --execute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("groups", nargs="*", metavar="GROUP", type=group_name)
    parser.add_argument("--all-groups", action="store_true", help="every group of consumers that there is")
    scope = parser.add_argument_group("which partitions")
    scope.add_argument(
        "--topic",
        metavar="TOPIC",
        type=topic_selection,
        action="append",
        default=[],
        help="of this topic all partitions, or TOPIC:0,1 these; repeatable",
    )
    scope.add_argument("--all-topics", action="store_true", help="all that the group has committed for")
    where = parser.add_argument_group("where to").add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record that is there")
    where.add_argument("--to-latest", action="store_true", help="the end: only what comes from now on")
    where.add_argument("--to-current", action="store_true", help="what is committed; where nothing is, the end")
    where.add_argument("--to-offset", metavar="N", type=offset_number, help="this offset")
    where.add_argument("--shift-by", metavar="N", type=reset_plan.shift, help="so many on, or back with -N")
    where.add_argument(
        "--to-datetime", metavar="TIME", type=timestamp_ms, help="the first record at or after it: ISO 8601"
    )
    where.add_argument(
        "--by-duration", metavar="DURATION", type=reset_plan.duration_ms, help="so long ago: ISO 8601 such as PT30M"
    )
    where.add_argument("--from-file", metavar="FILE", help="CSV as --export prints it; - is standard input")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--execute", action="store_true", help="do it")
    how.add_argument("--dry-run", action="store_true", help="only show it (the default)")
    parser.add_argument("--export", action="store_true", help="print the plan as CSV, for --from-file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.export and options.output == "json":
        raise UserError("--export prints CSV: leave out --output json, or leave out --export")
    target = _target(options)
    from_file = _file_offsets(options)
    _check_scope(options, from_file)
    with connect(options) as cluster:
        admin = admin_over(cluster)
        names = _names(admin, options, from_file)
        found = admin.describe_groups(names).outcomes
        names = [name for name in names if not (options.all_groups and _is_foreign(found[name]))]
        usable = [name for name in names if _is_usable(name, found[name])]
        plan = _plan(admin, cluster, usable, target, from_file, options)
        failed = _execute(admin, plan) if options.execute else 0
    if usable:
        _show(plan, len(names) > 1, options)
    if plan and not options.execute:
        remark("nothing was changed; --execute does it")
    return 1 if failed or len(usable) < len(names) else 0


def _target(options: argparse.Namespace) -> ResetTarget:
    if options.to_earliest:
        return ResetTarget(reset_plan.TO_EARLIEST)
    if options.to_latest:
        return ResetTarget(reset_plan.TO_LATEST)
    if options.to_current:
        return ResetTarget(reset_plan.TO_CURRENT)
    if options.to_offset is not None:
        return ResetTarget(reset_plan.TO_OFFSET, options.to_offset)
    if options.shift_by is not None:
        return ResetTarget(reset_plan.SHIFT_BY, options.shift_by)
    if options.from_file is not None:
        return ResetTarget(reset_plan.FROM_FILE)
    if options.to_datetime is not None:
        moment_ms: int = options.to_datetime
    else:
        moment_ms = int(time.time() * 1000) - options.by_duration
    if not 0 <= moment_ms <= INT64_MAX:
        raise UserError("that time is before 1970 or too far away; --to-earliest means the first record that there is")
    return ResetTarget(reset_plan.TO_TIME, moment_ms)


def _file_offsets(options: argparse.Namespace) -> FileOffsets:
    if options.from_file is None:
        return {}
    if options.from_file == "-":
        return reset_plan.read_file(sys.stdin, "standard input")
    with open(options.from_file, encoding="utf-8", newline="") as lines:
        return reset_plan.read_file(lines, options.from_file)


def _check_scope(options: argparse.Namespace, from_file: FileOffsets) -> None:
    if from_file:
        if options.topic or options.all_topics:
            raise UserError("--from-file names the partitions: leave out --topic and --all-topics")
    elif options.topic and options.all_topics:
        raise UserError("--all-topics means all that the group committed for: leave out --topic, or leave it out")
    elif not options.topic and not options.all_topics:
        raise UserError("say which partitions: --topic TOPIC, --topic TOPIC:0,1 or --all-topics")


def _names(admin: Admin, options: argparse.Namespace, from_file: FileOffsets) -> list[str]:
    in_file = [name for name in from_file if name is not None]
    if in_file and not options.groups and not options.all_groups:
        return in_file
    names = named_groups(admin, options)
    if None in from_file and len(names) != 1:
        raise UserError("lines without a group are for one group; give GROUP,TOPIC,PARTITION,OFFSET for several")
    strangers = [name for name in in_file if name not in names]
    if strangers:
        raise UserError(f"the file has lines for group {strangers[0]}, which was not named; name it, or take them out")
    return names


def _is_foreign(found: GroupDescription | Failure) -> bool:
    return isinstance(found, GroupDescription) and found.is_foreign


def _is_usable(name: str, found: GroupDescription | Failure) -> bool:
    """Whether offsets may be set; a group that does not exist yet comes into being with them."""
    if isinstance(found, GroupIdNotFoundError):
        return True
    if not isinstance(found, GroupDescription):
        remark_failure(found)
        return False
    if found.state.is_inactive:
        return True
    count = len(found.members)
    remark(
        f"group {name} has {count} active member{'' if count == 1 else 's'} (state {found.state}), which would go on "
        f"from their own offsets; stop them first (`braidlog groups describe {name} --members` shows who they are)"
    )
    return False


def _plan(
    admin: Admin,
    cluster: ClusterConnection,
    names: Sequence[str],
    target: ResetTarget,
    from_file: FileOffsets,
    options: argparse.Namespace,
) -> list[Change]:
    committed = {
        name: {each: value.offset for each, value in offsets.items()}
        for name, offsets in admin.list_group_offsets(names).items()
    }
    chosen = selected_partitions(cluster, options.topic)
    wanted: dict[str, list[TopicPartition]] = {}
    for name in names:
        if from_file:
            wanted[name] = sorted({**from_file.get(None, {}), **from_file.get(name, {})})
        else:
            wanted[name] = sorted(committed[name]) if options.all_topics else sorted(chosen)
        if not wanted[name] and not options.all_groups:
            remark(f"group {name} has committed nothing; name the partitions with --topic")
    at_ms = target.number if target.kind == reset_plan.TO_TIME else None
    bounds = bounds_of(admin, {each for partitions in wanted.values() for each in partitions}, at_ms)
    if target.kind == reset_plan.TO_TIME:
        remark(f"the time meant is {moment(target.number)}")
    changes: list[Change] = []
    for name in names:
        some = {each: bounds[each] for each in wanted[name]}
        in_file = {**from_file.get(None, {}), **from_file.get(name, {})}
        planned, notes = reset_plan.plan_for(name, target, committed[name], some, in_file)
        changes += planned
        for note in notes:
            remark(note)
    return changes


def _execute(admin: Admin, plan: Sequence[Change]) -> int:
    """Commit group by group; how many partitions were refused."""
    failed = 0
    for name in dict.fromkeys(change.group for change in plan):
        offsets = {
            TopicPartition(change.topic, change.partition): change.new_offset for change in plan if change.group == name
        }
        for problem in admin.alter_group_offsets(name, offsets).errors.values():
            remark_failure(problem)
            failed += 1
    return failed


def _show(plan: Sequence[Change], names_groups: bool, options: argparse.Namespace) -> None:
    if options.export:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        for change in plan:
            own = [change.group] if names_groups else []
            lines.writerow([*own, change.topic, change.partition, change.new_offset])
        return
    show([change._asdict() for change in plan], options.output, _COLUMNS)
