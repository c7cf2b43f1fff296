"""`braidlog groups list|describe|reset-offsets|delete`."""

from __future__ import annotations

import argparse
from typing import Any, Final

from braidlog.cli.groups import describe as groups_describe
from braidlog.cli.groups import reset_offsets as groups_reset
from braidlog.cli.options import add_connection, add_output, connect
from braidlog.cli.output import remark_failure, report, show
from braidlog.cli.topic_selection import TopicSelection, group_name, parse_names, selected_partitions, topic_selection
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.groups import GroupState, GroupType
from braidlog.core.protocol_errors import GroupIdNotFoundError, ProtocolError

STATES: Final = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
    GroupState.EMPTY,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)
TYPES: Final = (GroupType.CLASSIC, GroupType.CONSUMER)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    listing = verbs.add_parser("list", help="all groups, with their type and state")
    listing.add_argument(
        "--state", metavar="STATE", type=states, action="extend", default=[], help="only in this state; repeatable"
    )
    listing.add_argument(
        "--type", metavar="TYPE", type=types, action="extend", default=[], help="only classic or consumer groups"
    )
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="offsets and lag, members, or the state of groups")
    groups_describe.add_arguments(describe)

    reset = verbs.add_parser("reset-offsets", help="set the offsets that an inactive group goes on from")
    groups_reset.add_arguments(reset)

    delete = verbs.add_parser("delete", help="delete groups, or what they committed for a topic")
    delete.add_argument("groups", nargs="+", metavar="GROUP", type=group_name)
    delete.add_argument(
        "--topic",
        metavar="TOPIC",
        type=topic_selection,
        action="append",
        default=[],
        help="keep the group, delete its offsets of this topic (TOPIC:0,1 of these partitions); repeatable",
    )
    delete.add_argument("--if-exists", action="store_true", help="a missing group is no error")
    delete.set_defaults(run=run_delete)

    for verb in (listing, describe, reset, delete):
        add_connection(verb)
        add_output(verb)


def states(text: str) -> list[str]:
    """The type of --state."""
    return parse_names(text, STATES, "state of a group")


def types(text: str) -> list[str]:
    """The type of --type."""
    return parse_names(text, TYPES, "type of a group")


def run_list(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        listed = admin_over(cluster).list_groups(states=options.state, types=options.type)
    rows = [
        {
            "group": each.group_id,
            "type": each.type,
            "state": each.state or None,
            "protocol": each.protocol_type or None,
            "coordinator": each.coordinator,
        }
        for each in listed
    ]
    show(rows, options.output, ("group", "type", "state", "protocol", "coordinator"))
    return 0


def run_delete(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.groups))
    with connect(options) as cluster:
        if options.topic:
            return _delete_offsets(cluster, names, options.topic, options)
        outcomes = admin_over(cluster).delete_groups(names).outcomes
    failed = 0
    for group, problem in outcomes.items():
        row: dict[str, Any] = {"group": group, "deleted": problem is None}
        if problem is None:
            report(f"group {group} deleted", row, options.output)
        elif isinstance(problem, GroupIdNotFoundError) and options.if_exists:
            report(f"there is no group {group}", row, options.output)
        else:
            # The others were deleted all the same, so each is reported.
            remark_failure(problem)
            failed += 1
    return 1 if failed else 0


def _delete_offsets(
    cluster: ClusterConnection, names: list[str], topics: list[TopicSelection], options: argparse.Namespace
) -> int:
    partitions = selected_partitions(cluster, topics)
    groups = admin_over(cluster)
    rows: list[dict[str, Any]] = []
    failed = 0
    for group in names:
        try:
            outcomes = groups.delete_group_offsets(group, partitions).outcomes
        except ProtocolError as problem:
            if not (isinstance(problem, GroupIdNotFoundError) and options.if_exists):
                remark_failure(problem)
                failed += 1
            continue
        for (topic, partition), failure in sorted(outcomes.items()):
            rows.append({"group": group, "topic": topic, "partition": partition, "deleted": failure is None})
            if failure is not None:
                remark_failure(failure)
                failed += 1
    show(rows, options.output, ("group", "topic", "partition", "deleted"))
    return 1 if failed else 0
