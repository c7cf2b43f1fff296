"""`braidlog consume TOPIC`: print records, from a chosen offset on, and those that come."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from braidlog.cli.options import (
    add_connection,
    add_output,
    connect,
    not_negative,
    positive,
    seconds,
    timestamp_ms,
    unescaped,
)
from braidlog.cli.output import remark
from braidlog.cli.record_format import RecordFormat
from braidlog.cli.record_json import record_to_json
from braidlog.client.cluster import EARLIEST, LATEST, Cluster
from braidlog.client.consuming import Fetched, TopicReader
from braidlog.core.errors import UserError
from braidlog.wire.generated.metadata import MetadataResponseTopic
from braidlog.wire.records.reading import Record

_LONGEST_WAIT_S: Final = 0.5

_DESCRIPTION: Final = """\
Print the records of a topic's partitions, and go on with those that come, until interrupted or told otherwise.
The partitions are the ones that the topic has at the start; order holds within each.
"""
_EPILOG: Final = """\
--offset takes:
  earliest     the first record that is there
  latest       what comes from now on (the default)
  N            the record with this offset
  -N           the last N records of each partition
  @TIME        the first record at or after a time: ISO 8601, or milliseconds since 1970

--format takes text with these fields, and the escapes \\n \\t \\r \\0 \\\\ \\xNN:
  %n topic  %p partition  %o offset  %k key  %v value  %K %V sizes of key and value in bytes (-1: null)
  %t timestamp in milliseconds  %T the same as ISO 8601  %h headers as name=value,...  %% a percent sign
"""

Emit = Callable[[int, Record], None]


class Start(NamedTuple):
    """Where to begin: `timestamp` for the broker to look up, then `shift` records back; or a plain `offset`."""

    timestamp: int | None = None
    shift: int = 0
    offset: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partition", metavar="N", type=not_negative, action="append", help="only this partition; repeatable"
    )
    parser.add_argument(
        "--offset", metavar="WHERE", type=start, default=Start(LATEST), help="where to begin, see below; default latest"
    )
    parser.add_argument("--max-messages", metavar="N", type=positive, help="stop after so many records")
    parser.add_argument("--exit-at-end", action="store_true", help="stop at what was the end at the start")
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, help="stop when no record came for so long")
    parser.add_argument("--format", metavar="TEXT", type=RecordFormat, help="of a record, see below (default %%v)")
    parser.add_argument("--delimiter", metavar="TEXT", type=unescaped, help="after each record (default a newline)")
    parser.add_argument("--null", metavar="TEXT", default="null", help="for a null key or value (default null)")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: no records of open or aborted transactions",
    )
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def start(text: str) -> Start:
    """The type of --offset."""
    if text == "earliest":
        return Start(EARLIEST)
    if text == "latest":
        return Start(LATEST)
    if text.startswith("@"):
        return Start(timestamp_ms(text[1:]))
    if text.isdecimal():
        return Start(offset=int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Start(LATEST, shift=int(text[1:]))
    raise argparse.ArgumentTypeError(f"{text!r} is none of earliest, latest, N, -N, @TIME")


def run(options: argparse.Namespace) -> int:
    if options.output == "json" and (options.format or options.delimiter is not None):
        raise UserError("--output json prints one object per line: leave out --format and --delimiter")
    committed = options.isolation == "read_committed"
    with connect(options) as cluster:
        topic = cluster.topic(options.topic)
        partitions = _chosen(topic, options.partition)
        positions = _positions(cluster, options.topic, partitions, options.offset, committed)
        ends = None
        if options.exit_at_end:
            ends = cluster.offsets(options.topic, dict.fromkeys(partitions, LATEST), committed=committed)
        reader = TopicReader(
            cluster, options.topic, positions, committed=committed, on_gap=_tell_gap(options.topic)
        )
        _follow(reader, _emitter(options), ends, options.max_messages, options.timeout)
    return 0


def _chosen(topic: MetadataResponseTopic, wanted: list[int] | None) -> list[int]:
    there = sorted(partition.partition_index for partition in topic.partitions)
    for partition in wanted or ():
        if partition not in there:
            raise UserError(f"topic {topic.name} has no partition {partition}; it has {len(there)}, counted from 0")
    return sorted(set(wanted)) if wanted else there


def _positions(
    cluster: Cluster, topic: str, partitions: Iterable[int], where: Start, committed: bool
) -> dict[int, int]:
    if where.timestamp is None:
        return dict.fromkeys(partitions, where.offset)
    found = cluster.offsets(topic, dict.fromkeys(partitions, where.timestamp), committed=committed)
    late = [partition for partition, offset in found.items() if offset < 0]
    if late:
        # No record is that young: what comes next will be.
        found |= cluster.offsets(topic, dict.fromkeys(late, LATEST), committed=committed)
    if where.shift:
        first = cluster.offsets(topic, dict.fromkeys(found, EARLIEST))
        found = {partition: max(offset - where.shift, first[partition]) for partition, offset in found.items()}
    return found


def _follow(
    reader: TopicReader, emit: Emit, ends: dict[int, int] | None, most: int | None, idle_s: float | None
) -> None:
    """Print until the ends are reached, so many records were printed, or none came for so long."""
    printed = 0
    heard = time.monotonic()
    while True:
        unread = None
        if ends is not None:
            unread = {partition for partition, end in ends.items() if reader.positions[partition] < end}
            if not unread:
                return
        left = _LONGEST_WAIT_S if idle_s is None else heard + idle_s - time.monotonic()
        if left <= 0:
            return
        fetched = reader.poll(min(left, _LONGEST_WAIT_S), unread)
        for partition, record in _in_bounds(fetched, ends):
            emit(partition, record)
            printed += 1
            if printed == most:
                return
        if fetched:
            sys.stdout.buffer.flush()
            heard = time.monotonic()


def _in_bounds(fetched: Iterable[Fetched], ends: dict[int, int] | None) -> Iterable[tuple[int, Record]]:
    for partition, records in fetched:
        for record in records:
            if ends is None or record.offset < ends[partition]:
                yield partition, record


def _emitter(options: argparse.Namespace) -> Emit:
    sys.stdout.flush()
    out = sys.stdout.buffer
    topic: str = options.topic
    if options.output == "json":

        def emit_json(partition: int, record: Record) -> None:
            out.write(record_to_json(topic, partition, record).encode("utf-8") + b"\n")

        return emit_json
    shape = options.format or RecordFormat("%v")
    null = os.fsencode(options.null)
    delimiter = b"\n" if options.delimiter is None else options.delimiter.encode("utf-8")

    def emit(partition: int, record: Record) -> None:
        out.write(shape.format(topic, partition, record, null) + delimiter)

    return emit


def _tell_gap(topic: str) -> Callable[[int, int, int], None]:
    def tell(partition: int, position: int, start_offset: int) -> None:
        remark(f"{topic}-{partition} starts at offset {start_offset} by now; going on there instead of {position}")

    return tell
