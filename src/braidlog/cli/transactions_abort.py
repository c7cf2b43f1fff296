"""`braidlog transactions abort`: by its transactional id, or, hanging, by where it starts in a partition."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from braidlog.cli.options import connect, offset_number, partition_number
from braidlog.cli.output import confirm, report
from braidlog.cli.topic_selection import transactional_id
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.transactions import ActiveProducer, TransactionState
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

_DESCRIPTION: Final = """\
Abort a transaction. What it wrote is never shown to readers with isolation read_committed; the records stay in the log.

  --transactional-id ID
      The coordinator aborts what is open under the id, in all partitions, and fences the producer that holds the id:
      its next call fails, and it has to start over. This is what a new producer with the same id would do.
  --topic TOPIC --partition N --start-offset N
      For a hanging transaction, which no coordinator knows: an abort marker is written to the one partition.
      `braidlog transactions find-hanging` finds them. One that a coordinator still cares for is refused.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.add_argument(
        "--transactional-id", metavar="TRANSACTIONAL-ID", type=transactional_id, help="whose open transaction to abort"
    )
    parser.add_argument("--topic", metavar="TOPIC", help="where a hanging transaction is")
    parser.add_argument("--partition", metavar="N", type=partition_number, help="in which partition")
    parser.add_argument("--start-offset", metavar="N", type=offset_number, help="the offset of its first record")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    place = (options.topic, options.partition, options.start_offset)
    if options.transactional_id is not None:
        if any(each is not None for each in place):
            raise UserError("give --transactional-id, or --topic with --partition and --start-offset, but not both")
        return _abort_id(options)
    if any(each is None for each in place):
        raise UserError("say which transaction: --transactional-id ID, or --topic, --partition and --start-offset")
    return _abort_hanging(options)


def _abort_id(options: argparse.Namespace) -> int:
    name: str = options.transactional_id
    with connect(options) as cluster:
        transactions = admin_over(cluster)
        found = transactions.describe_transactions([name])[name]
        if found.state.is_ending:
            raise UserError(
                f"the transaction of {name} is being ended (state {found.state}), which cannot be changed any more; "
                f"`braidlog transactions describe {name}` shows when it is done"
            )
        is_ongoing = found.state == TransactionState.ONGOING
        row = {"transactional_id": name, "producer_id": found.producer_id, "aborted": is_ongoing}
        if not is_ongoing:
            report(f"{name} has no open transaction (state {found.state}); nothing was done", row, options.output)
            return 0
        count = len(found.partitions)
        confirm(
            f"abort the transaction of {name} in {count} partition{'' if count == 1 else 's'} and fence its producer "
            f"{found.producer_id} (epoch {found.producer_epoch})",
            options.yes,
        )
        epoch = transactions.fence_producers([name], timeout_ms=found.timeout_ms)[name].producer_epoch
    text = f"transaction of {name} aborted; producer {found.producer_id} with epoch {found.producer_epoch} is fenced"
    report(text, {**row, "fenced_epoch": found.producer_epoch, "producer_epoch": epoch}, options.output)
    return 0


def _abort_hanging(options: argparse.Namespace) -> int:
    place = TopicPartition(options.topic, options.partition)
    with connect(options) as cluster:
        transactions = admin_over(cluster)
        producer = _starting_at(transactions.describe_producers([place])[place], place, options.start_offset)
        cared_for = transactions.coordinated([producer])
        if producer in cared_for:
            name = cared_for[producer]
            raise UserError(
                f"the transaction at offset {options.start_offset} of {place} does not hang: the coordinator of {name} "
                f"will end it; `braidlog transactions abort --transactional-id {name}` aborts it now"
            )
        confirm(
            f"write an abort marker for producer {producer.producer_id} (epoch {producer.producer_epoch}) to {place}, "
            f"whose transaction starts at offset {options.start_offset}",
            options.yes,
        )
        transactions.abort_transaction(producer)
    row = {
        "topic": place.topic,
        "partition": place.partition,
        "start_offset": options.start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "aborted": True,
    }
    report(f"transaction at offset {options.start_offset} of {place} aborted", row, options.output)
    return 0


def _starting_at(producers: Iterable[ActiveProducer], place: TopicPartition, start: int) -> ActiveProducer:
    open_at = {each.transaction_start: each for each in producers if each.transaction_start >= 0}
    if start not in open_at:
        others = f"open ones start at {', '.join(map(str, sorted(open_at)))}" if open_at else "none is open there"
        raise UserError(f"no open transaction of {place} starts at offset {start}; {others}")
    return open_at[start]
