"""`braidlog transactions list|describe|producers|find-hanging|abort`."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any, Final

from braidlog.cli import transactions_abort
from braidlog.cli.options import add_connection, add_output, connect, partition_number, producer_number, seconds
from braidlog.cli.output import Row, remark, remark_failure, show
from braidlog.cli.topic_selection import (
    TopicSelection,
    as_json,
    moment,
    parse_names,
    selected_partitions,
    transactional_id,
    written,
)
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.transactions import (
    ActiveProducer,
    TransactionDescription,
    TransactionState,
)
from braidlog.client.cluster_view import NO_LEADER
from braidlog.core.protocol_errors import NONE
from braidlog.core.types import TopicPartition

_DESCRIBED: Final = (
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "state",
    "timeout_ms",
    "start_time",
    "duration_ms",
    "coordinator",
    "partitions",
)
_PRODUCERS: Final = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_timestamp",
    "transaction_start_offset",
)
_HANGING: Final = (
    "topic",
    "partition",
    "start_offset",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_timestamp",
    "idle_s",
)
# The longest timeout that a broker lets a producer ask for, unless it was configured otherwise.
_MAX_TIMEOUT_S: Final = 900.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    listing = verbs.add_parser("list", help="all transactional ids, with their state")
    listing.add_argument(
        "--state", metavar="STATE", type=states, action="extend", default=[], help="only in this state; repeatable"
    )
    listing.add_argument(
        "--producer-id",
        metavar="N",
        type=producer_number,
        action="append",
        default=[],
        help="only of this producer; repeatable",
    )
    listing.add_argument("--longer-than", metavar="SECONDS", type=seconds, help="only those open for longer")
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="producer, timeout, start and partitions of transactions")
    describe.add_argument("transactional_ids", nargs="+", metavar="TRANSACTIONAL-ID", type=transactional_id)
    describe.set_defaults(run=run_describe)

    producers = verbs.add_parser("producers", help="the producers that a topic's partitions know")
    producers.add_argument("--topic", metavar="TOPIC", required=True, help="the topic")
    _add_partition(producers)
    producers.set_defaults(run=run_producers)

    hanging = verbs.add_parser("find-hanging", help="transactions that no coordinator will ever end")
    hanging.add_argument("--topic", metavar="TOPIC", help="only in this topic (default: in all)")
    _add_partition(hanging)
    hanging.add_argument(
        "--idle", metavar="SECONDS", type=seconds, default=_MAX_TIMEOUT_S, help="silent for so long (default 900)"
    )
    hanging.set_defaults(run=run_find_hanging)

    abort = verbs.add_parser("abort", help="abort an open or a hanging transaction")
    transactions_abort.add_arguments(abort)

    for verb in (listing, describe, producers, hanging, abort):
        add_connection(verb)
        add_output(verb)


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition",
        metavar="N",
        type=partition_number,
        action="append",
        help="only this partition; repeatable (default: all)",
    )


def states(text: str) -> list[str]:
    """The type of --state."""
    known = [each for each in TransactionState if each is not TransactionState.UNKNOWN]
    return parse_names(text, known, "state of a transaction")


def run_list(options: argparse.Namespace) -> int:
    longer_than_ms = None if options.longer_than is None else int(options.longer_than * 1000)
    with connect(options) as cluster:
        listed = admin_over(cluster).list_transactions(
            states=options.state, producer_ids=options.producer_id, longer_than_ms=longer_than_ms
        )
    columns = ("transactional_id", "coordinator", "producer_id", "state")
    show([asdict(each) for each in listed], options.output, columns)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        found = admin_over(cluster).describe_transactions(options.transactional_ids).outcomes
    rows: list[Row] = []
    failed = 0
    for each in found.values():
        if isinstance(each, TransactionDescription):
            rows.append(described(each, time.time(), options.output))
        elif len(found) == 1:
            raise each
        else:
            remark_failure(each)
            failed += 1
    show(rows, options.output, _DESCRIBED)
    return 1 if failed else 0


def described(transaction: TransactionDescription, now: float, output: str) -> Row:
    row: dict[str, Any] = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "state": transaction.state,
        "timeout_ms": transaction.timeout_ms,
        "duration_ms": max(int(now * 1000) - transaction.start_ms, 0) if transaction.state.is_open else None,
        "coordinator": transaction.coordinator,
    }
    if output == "json":
        row["start_time_ms"] = _if_any(transaction.start_ms)
        row["partitions"] = as_json(transaction.partitions)
    else:
        row["start_time"] = moment(transaction.start_ms)
        row["partitions"] = written(transaction.partitions) or None
    return row


def run_producers(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        found = _producers(admin_over(cluster), cluster, options)
    show([_producer(each, options.output) for each in found], options.output, _PRODUCERS)
    return 0


def _producer(each: ActiveProducer, output: str) -> Row:
    return {
        "topic": each.place.topic,
        "partition": each.place.partition,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator_epoch": _if_any(each.coordinator_epoch),
        "last_sequence": _if_any(each.last_sequence),
        **_timestamp(each.last_timestamp_ms, output),
        "transaction_start_offset": _if_any(each.transaction_start),
    }


def run_find_hanging(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        transactions = admin_over(cluster)
        now_ms = int(time.time() * 1000)
        idle = [
            each
            for each in _producers(transactions, cluster, options)
            if each.transaction_start >= 0 and now_ms - each.last_timestamp_ms >= options.idle * 1000
        ]
        cared_for = transactions.coordinated(idle)
    rows = [
        {
            "topic": each.place.topic,
            "partition": each.place.partition,
            "start_offset": each.transaction_start,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator_epoch": _if_any(each.coordinator_epoch),
            **_timestamp(each.last_timestamp_ms, options.output),
            "idle_s": (now_ms - each.last_timestamp_ms) // 1000,
        }
        for each in idle
        if each not in cared_for
    ]
    show(rows, options.output, _HANGING)
    if rows and options.output != "json":
        remark("`braidlog transactions abort --topic TOPIC --partition N --start-offset N` ends such a transaction")
    return 0


def _producers(transactions: Admin, cluster: ClusterConnection, options: argparse.Namespace) -> list[ActiveProducer]:
    """Those of the partitions meant, in their order."""
    found = transactions.describe_producers(sorted(_partitions(cluster, options.topic, options.partition)))
    return [each for some in found.raise_for_errors().values() for each in some]


def _partitions(cluster: ClusterConnection, topic: str | None, numbers: list[int] | None) -> list[TopicPartition]:
    chosen = tuple(numbers) if numbers else None
    if topic is not None:
        return selected_partitions(cluster, [TopicSelection(topic, chosen)])
    return [
        TopicPartition(each.name, partition.index)
        for each in cluster.metadata(None)
        for partition in each.partitions
        if each.error_code == NONE and partition.leader != NO_LEADER
        if chosen is None or partition.index in chosen
    ]


def _timestamp(milliseconds: int, output: str) -> Row:
    if output == "json":
        return {"last_timestamp_ms": _if_any(milliseconds)}
    return {"last_timestamp": moment(milliseconds)}


def _if_any(number: int) -> int | None:
    return number if number >= 0 else None
