"""`braidlog groups describe`: offsets and lag by partition, or the members, or the state of groups."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from braidlog.cli.options import connect
from braidlog.cli.output import Row, remark, remark_failure, show
from braidlog.cli.topic_selection import as_json, group_name, written
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.groups import GroupDescription, GroupMember, GroupState
from braidlog.client.admin.records import ListedOffset, OffsetSpec
from braidlog.client.admin.results import Failure
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import GroupIdNotFoundError
from braidlog.core.types import TopicPartition

_OFFSETS: Final = (
    "group",
    "topic",
    "partition",
    "current_offset",
    "log_end_offset",
    "lag",
    "consumer_id",
    "host",
    "client_id",
)
_MEMBERS: Final = ("group", "consumer_id", "group_instance_id", "host", "client_id", "#partitions")
_STATE: Final = ("group", "coordinator (id)", "assignment_strategy", "state", "#members", "type")

_REBALANCING: Final = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)

_EPILOG: Final = """\
LAG is how many offsets lie between the group's committed offset and the end of the partition; `-` is what is not known,
such as the offset of a partition that the group never committed. HOST is the member's address as the broker saw it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("groups", nargs="*", metavar="GROUP", type=group_name)
    parser.add_argument("--all-groups", action="store_true", help="every group that there is")
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--offsets", action="store_true", help="committed offsets and lag by partition (the default)")
    views.add_argument("--members", action="store_true", help="who is in the group")
    views.add_argument("--state", action="store_true", help="state, coordinator, assignor and number of members")
    parser.add_argument("--verbose", action="store_true", help="with --members also what each is assigned")
    parser.add_argument("--if-exists", action="store_true", help="a missing group is no error")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        names = named_groups(admin, options)
        outcomes = admin.describe_groups(names).outcomes
        described, failed = _described(outcomes, options.if_exists or options.all_groups)
        if options.members:
            show_members(described, options.verbose, options.output)
        elif options.state:
            show_state(described, options.output)
        else:
            wanted = [group.group_id for group in described]
            committed = admin.list_group_offsets(wanted).raise_for_errors()
            rows = _offset_rows(admin, described, committed)
            show(rows, options.output, _OFFSETS)
    if options.output != "json":
        _remark_states(described)
    return 1 if failed else 0


def named_groups(groups: Admin, options: argparse.Namespace) -> list[str]:
    """Those that were named, or all."""
    if options.all_groups and options.groups:
        raise UserError("--all-groups means every group: leave out the names, or leave out --all-groups")
    if options.all_groups:
        return [each.group_id for each in groups.list_groups()]
    if not options.groups:
        raise UserError("say which groups: name them, or use --all-groups")
    return list(dict.fromkeys(options.groups))


def _described(
    found: Mapping[str, GroupDescription | Failure], missing_is_fine: bool
) -> tuple[list[GroupDescription], int]:
    groups: list[GroupDescription] = []
    failed = 0
    for each in found.values():
        if isinstance(each, GroupDescription):
            groups.append(each)
        elif not (missing_is_fine and isinstance(each, GroupIdNotFoundError)):
            if len(found) == 1:
                raise each
            remark_failure(each)
            failed += 1
    return groups, failed


def _offset_rows(
    admin: Admin,
    groups: Sequence[GroupDescription],
    committed: Mapping[str, dict[TopicPartition, OffsetAndMetadata]],
) -> list[Row]:
    wanted = {each for group in groups for each in _owners(group)} | {
        each for offsets in committed.values() for each in offsets
    }
    ends = admin.list_offsets(dict.fromkeys(sorted(wanted), OffsetSpec.LATEST)).outcomes
    return [row for group in groups for row in offset_rows(group, committed[group.group_id], ends)]


def offset_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, ListedOffset | Failure],
) -> list[Row]:
    """One row for each partition that a member has or the group committed for.

    Of members that share out something else there is nothing to tell but that they are there.
    """
    owners = _owners(group)
    rows: list[Row] = []
    for each in sorted({*owners, *committed}):
        end = ends.get(each)
        log_end = end.offset if isinstance(end, ListedOffset) and end.offset >= 0 else None
        offset = committed.get(each)
        rows.append(
            {
                "group": group.group_id,
                "topic": each.topic,
                "partition": each.partition,
                "current_offset": offset.offset if offset is not None else None,
                "log_end_offset": log_end,
                "lag": log_end - offset.offset if log_end is not None and offset is not None else None,
                **_member_cells(owners.get(each)),
                "leader_epoch": offset.leader_epoch if offset is not None and offset.leader_epoch >= 0 else None,
                "metadata": offset.metadata if offset is not None else None,
            }
        )
    rows += [
        {**dict.fromkeys((*_OFFSETS, "leader_epoch", "metadata")), "group": group.group_id, **_member_cells(member)}
        for member in group.members
        if member.assignment is None
    ]
    return rows


def _owners(group: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {each: member for member in group.members for each in member.assignment or ()}


def _member_cells(member: GroupMember | None) -> Row:
    if member is None:
        return {"consumer_id": None, "host": None, "client_id": None}
    return {"consumer_id": member.member_id, "host": member.host, "client_id": member.client_id}


def show_members(groups: Iterable[GroupDescription], verbose: bool, output: str) -> None:
    pairs = [(group, member) for group in groups for member in group.members]
    if output == "json":
        show([_member_json(group, member) for group, member in pairs], output)
        return
    # Columns that would be empty all the way down are left out.
    columns = [name for name in _MEMBERS if name != "group_instance_id" or _any_static(pairs)]
    if verbose:
        columns.append("assignment")
        if any(member.target not in (None, member.assignment) for _, member in pairs):
            columns.append("target_assignment")
    show([_member_row(group, member) for group, member in pairs], output, columns)


def _any_static(pairs: Iterable[tuple[GroupDescription, GroupMember]]) -> bool:
    return any(member.instance_id is not None for _, member in pairs)


def _member_row(group: GroupDescription, member: GroupMember) -> Row:
    return {
        "group": group.group_id,
        **_member_cells(member),
        "group_instance_id": member.instance_id,
        "#partitions": None if member.assignment is None else len(member.assignment),
        "assignment": written(member.assignment) if member.assignment else None,
        "target_assignment": written(member.target) if member.target else None,
    }


def _member_json(group: GroupDescription, member: GroupMember) -> Row:
    return {
        "group": group.group_id,
        **_member_cells(member),
        "group_instance_id": member.instance_id,
        "member_epoch": member.epoch,
        "partition_count": None if member.assignment is None else len(member.assignment),
        "assignment": as_json(member.assignment),
        "target_assignment": as_json(member.target),
    }


def show_state(groups: Iterable[GroupDescription], output: str) -> None:
    rows: list[dict[str, Any]] = []
    for group in groups:
        row: dict[str, Any] = {"group": group.group_id, "state": group.state, "type": group.type}
        if output == "json":
            place = group.coordinator
            row["protocol"] = group.protocol_type or None
            row["assignment_strategy"] = group.assignor or None
            row["coordinator"] = {"id": place.broker_id, "host": place.host, "port": place.port}
            row["member_count"] = len(group.members)
        else:
            row["coordinator (id)"] = str(group.coordinator)
            row["assignment_strategy"] = group.assignor or None
            row["#members"] = len(group.members)
        rows.append(row)
    show(rows, output, _STATE)


def _remark_states(groups: Iterable[GroupDescription]) -> None:
    """What explains missing cells."""
    for group in groups:
        if group.state in _REBALANCING:
            remark(f"group {group.group_id} is rebalancing: what its members have is about to change")
        elif not group.members:
            remark(f"group {group.group_id} has no active members")
        elif group.is_foreign:
            kind = group.protocol_type
            remark(f"group {group.group_id} is of type {kind}: what its members share out only they can tell")
