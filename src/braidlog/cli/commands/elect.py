"""`braidlog elect`: let preferred replicas lead again, or, as the last resort, one that is not in sync."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from braidlog.cli.options import add_connection, add_output, connect
from braidlog.cli.output import confirm, remark_failure, show, size_text
from braidlog.cli.topic_selection import selected_partitions, topic_selection
from braidlog.client.admin.admin import Admin, ElectionType, admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.topics import PartitionDescription
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ElectionNotNeededError
from braidlog.core.types import TopicPartition

_COLUMNS: Final = ("topic", "partition", "was", "leader", "result")
_LOSS_COLUMNS: Final = ("topic", "partition", "in_sync", "candidates", "lacks_records", "size")
_EPILOG: Final = """\
A preferred leader is the first of a partition's replicas. It leads again if it is up and in sync; nothing is lost.

--unclean is for partitions without a leader, all of whose in-sync replicas are gone for good: one that is not in sync
leads, and every record that it lacks is LOST, also where a producer was told that it is written. What is known of the
loss is shown first. LACKS-RECORDS is how many committed records a candidate knows that it does not have; those that
came after it lost touch with the leader come on top, and nobody that is up knows them. Start the brokers of IN-SYNC
instead, if that can be done.

examples:
  braidlog elect --all                    every partition that its preferred replica does not lead
  braidlog elect orders users:0,1
  braidlog elect orders:3 --unclean       shows what would be lost, and asks
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC", type=topic_selection, help="all of its partitions, or TOPIC:0,1 these"
    )
    parser.add_argument("--all", action="store_true", help="of every topic")
    parser.add_argument("--unclean", action="store_true", help="also a replica that is not in sync; records are lost")
    parser.add_argument("--yes", action="store_true", help="do not ask before records are lost")
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if bool(options.topics) == options.all:
        raise UserError("say of what: TOPIC, TOPIC:0,1 or --all")
    kind = ElectionType.UNCLEAN if options.unclean else ElectionType.PREFERRED
    with connect(options) as cluster:
        admin = admin_over(cluster)
        partitions = _described(cluster, admin, options)
        wanted = [each for each, found in partitions.items() if _needs(found, kind)]
        if options.unclean and wanted:
            _show_loss(admin, wanted, partitions, options)
            confirm(f"lose records of {len(wanted)} partition{'' if len(wanted) == 1 else 's'}", options.yes)
        outcomes = admin.elect_leaders(wanted, kind).outcomes if wanted else {}
        after = _described(cluster, admin, options) if wanted else partitions
    rows: list[dict[str, Any]] = []
    failed = 0
    for place in wanted:
        problem = outcomes[place]
        if problem is not None and not isinstance(problem, ElectionNotNeededError):
            failed += 1
            remark_failure(problem)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "was": partitions[place].leader,
                "leader": after[place].leader if place in after else None,
                "result": "elected" if problem is None else problem.name if hasattr(problem, "name") else "failed",
            }
        )
    if not rows and options.output != "json":
        what = "has no leader" if options.unclean else "is led by another than its preferred replica"
        print(f"nothing to elect: of {len(partitions)} partitions none {what}")
        return 0
    show(rows, options.output, _COLUMNS)
    return 1 if failed else 0


def _needs(partition: PartitionDescription, kind: ElectionType) -> bool:
    if kind == ElectionType.UNCLEAN:
        return partition.leader is None
    return partition.leader != partition.replicas[0]


def _described(
    cluster: ClusterConnection, admin: Admin, options: argparse.Namespace
) -> dict[TopicPartition, PartitionDescription]:
    chosen = None if options.all else selected_partitions(cluster, options.topics)
    topics = admin.describe_topics(None if chosen is None else sorted({each.topic for each in chosen})).values()
    found = {TopicPartition(topic.name, each.partition): each for topic in topics for each in topic.partitions}
    return {each: found[each] for each in sorted(found) if chosen is None or each in chosen}


def _show_loss(
    admin: Admin,
    wanted: Sequence[TopicPartition],
    partitions: dict[TopicPartition, PartitionDescription],
    options: argparse.Namespace,
) -> None:
    """Before it is done; a script that reads JSON has said --yes and wants the result alone."""
    if options.output == "json":
        return
    alive = {each.broker_id for each in admin.describe_cluster().brokers}
    held = {
        (place, broker): replica
        for broker, directories in admin.describe_log_dirs(partitions=wanted).succeeded.items()
        for directory in directories
        for place, replica in directory.replicas.items()
        if not replica.is_future
    }
    rows: list[dict[str, Any]] = []
    for place in wanted:
        found = partitions[place]
        candidates = [each for each in found.replicas if each in alive]
        known = [held[place, each] for each in candidates if (place, each) in held]
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "in_sync": list(found.in_sync),
                "candidates": candidates,
                "lacks_records": [max(each.offset_lag, 0) for each in known],
                "size": ", ".join(size_text(each.size_bytes) or "" for each in known),
            }
        )
    show(rows, "table", _LOSS_COLUMNS)
