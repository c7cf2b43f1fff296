"""`braidlog consume TOPIC`: print records, from a chosen offset on, and those that come."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from braidlog.cli.interrupts import exit_code_of, interrupts_wait
from braidlog.cli.options import add_connection, add_output, connect, partition_number, positive, seconds, unescaped
from braidlog.cli.output import remark
from braidlog.cli.program import EXIT_OK
from braidlog.cli.records.byte_formats import shown
from braidlog.cli.records.client_options import add_formats, client_settings, remark_on_logs
from braidlog.cli.records.format_string import RecordFormat, Style
from braidlog.cli.records.json_format import JsonFormat
from braidlog.cli.records.offset_range import OffsetKind, OffsetPosition, OffsetRange, offset_range, positions_of
from braidlog.cli.records.progress import RecordProgress
from braidlog.cli.records.record_reader import Chunk, RecordReader, SliceSource
from braidlog.cli.records.record_text import RecordText
from braidlog.cli.records.schema_decoding import EPILOG as _REGISTRY_EPILOG
from braidlog.cli.records.schema_decoding import DecodingStopped, RecordDecoding, add_decoding, record_decoding
from braidlog.client.cluster_view import TopicView
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

_DESCRIPTION: Final = """\
Print the records of a topic's partitions, and go on with those that come, until interrupted or until the limit given.
Order holds within each partition. With --group the partitions are shared with the other members of the group, and
what was printed is committed; else they are those that the topic has at the start.
"""
_EPILOG: Final = """\
--offset takes:
  earliest     the first record that is there
  latest       what comes from now on (the default)
  committed    where the group is (the default with --group)
  N            the record with this offset
  end-N, -N    the last N records of each partition
  @TIME        the first record at or after a time: ISO 8601, or milliseconds since 1970
  START:END    from the one up to but not including the other, then stop; :END begins at earliest, START: does not stop
With --group, earliest and latest say where to begin where the group has committed nothing.

--format takes text with these fields, and the escapes \\n \\t \\r \\0 \\\\ \\xNN:
  %n topic  %p partition  %o offset  %k key  %v value  %K %V sizes of key and value in bytes (-1: null)
  %t timestamp in milliseconds  %T the same as ISO 8601  %h headers as name=value,...  %% a percent sign

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG + _REGISTRY_EPILOG
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partition", metavar="N", type=partition_number, action="append", help="only this partition; repeatable"
    )
    # Else "-10:" would be taken for an option, as "-10" is not.
    parser._negative_number_matcher = re.compile(r"^-\d")
    parser.add_argument(
        "--offset", metavar="WHERE", type=offset_range, help="where to begin (and end), see below; default latest"
    )
    parser.add_argument("--group", metavar="GROUP", help="read as a member of this group, and commit for it")
    parser.add_argument("--max-messages", metavar="N", type=positive, help="stop after so many records")
    parser.add_argument(
        "--exit-at-end", "--until-end", action="store_true", help="stop at what was the end at the start"
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, help="stop when no record came for so long")
    parser.add_argument("--format", metavar="TEXT", type=RecordFormat, help="of a record, see below (default %%v)")
    add_formats(parser)
    add_decoding(parser)
    parser.add_argument("--delimiter", metavar="TEXT", type=unescaped, help="after each record (default a newline)")
    parser.add_argument("--null", metavar="TEXT", default="null", help="for a null key or value (default null)")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        help="read_committed: no records of open or aborted transactions (default read_uncommitted)",
    )
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    where = _checked_range(options)
    remark_on_logs()
    with connect(options) as cluster:
        partitions = _chosen(cluster.topic(options.topic), options.partition)
        settings = _settings(options, where, cluster.settings)
    decoding = record_decoding(options)
    progress = RecordProgress("read", beside_output=True)
    with Consumer(settings) as consumer:
        reader = RecordReader(
            consumer,
            SliceSource(consumer, _text_of(options, decoding), decoding),
            _emitter(progress),
            until_end=options.exit_at_end,
            most=options.max_messages,
            idle_s=options.timeout,
            commits=options.group is not None,
            waiting=_on_waiting(options, where),
        )
        code = EXIT_OK
        try:
            _begin(consumer, reader, options, where, partitions)
            reader.run()
        except KeyboardInterrupt as interruption:
            code = exit_code_of(interruption)
        except DecodingStopped:
            if options.group is not None:
                with interrupts_wait():
                    reader.commit()
            raise
        if options.group is not None:
            with interrupts_wait():
                reader.commit()
    progress.conclude(interrupted=code != EXIT_OK)
    if decoding is not None:
        decoding.conclude()
    return code


def _checked_range(options: argparse.Namespace) -> OffsetRange:
    if options.output == "json" and (options.format or options.delimiter is not None):
        raise UserError("--output json prints one object per line: leave out --format and --delimiter")
    if options.group is None:
        if options.offset is not None and options.offset.start.at is OffsetKind.COMMITTED:
            raise UserError("--offset committed is where a group is: say which with --group")
        return options.offset or OffsetRange(OffsetPosition(OffsetKind.LATEST))
    where: OffsetRange = options.offset or OffsetRange(OffsetPosition(OffsetKind.COMMITTED))
    if where.start.at not in (OffsetKind.COMMITTED, OffsetKind.EARLIEST, OffsetKind.LATEST) or where.end is not None:
        raise UserError(
            "a group goes on where it is: --offset takes earliest or latest for where it has committed nothing; "
            "`braidlog groups reset-offsets` puts it elsewhere, and ranges are read without --group"
        )
    return where


def _on_waiting(options: argparse.Namespace, where: OffsetRange) -> Callable[[Consumer], None] | None:
    """A hint on a terminal on which nothing happens."""
    if not sys.stderr.isatty():
        return None

    def say(consumer: Consumer) -> None:
        assigned = consumer.assignment()
        first, ends = consumer.beginning_offsets(assigned), consumer.end_offsets(assigned)
        is_new_only = options.group is None and where.end is None and where.start.at is not OffsetKind.EARLIEST
        has_old = is_new_only and any(first[each] < ends[each] for each in assigned)
        remark(f"waiting for new records{'; --offset earliest for old ones' if has_old else ''}")

    return say


def _chosen(topic: TopicView, wanted: list[int] | None) -> list[TopicPartition]:
    there = [partition.index for partition in topic.partitions]
    for partition in wanted or ():
        if partition not in there:
            raise UserError(f"topic {topic.name} has no partition {partition}; it has {len(there)}, counted from 0")
    return [TopicPartition(topic.name, number) for number in (sorted(set(wanted)) if wanted else there)]


def _settings(options: argparse.Namespace, where: OffsetRange, file: Mapping[str, Any]) -> dict[str, Any]:
    settings = client_settings(options, file, default_api_timeout_ms=round(options.request_timeout * 1000))
    if options.isolation is not None:
        settings["isolation.level"] = options.isolation
    settings["enable.auto.commit"] = False
    settings.pop("group.id", None)
    if options.group is not None:
        settings["group.id"] = options.group
        settings["auto.offset.reset"] = "earliest" if where.start.at is OffsetKind.EARLIEST else "latest"
    else:
        # What lies before the log's start is reported, and what lies after its end is a mistake.
        settings["auto.offset.reset"] = "none"
    return settings


class _CommitOnRevoke(RebalanceListener):
    """What was printed of partitions is committed before others get them."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._reader.commit()
        self._reader.forget(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._reader.forget(partitions)


def _begin(
    consumer: Consumer,
    reader: RecordReader,
    options: argparse.Namespace,
    where: OffsetRange,
    partitions: list[TopicPartition],
) -> None:
    if options.group is not None and options.partition is None:
        consumer.subscribe([options.topic], listener=_CommitOnRevoke(reader))
        return
    if options.group is not None:
        consumer.assign(partitions)
        return
    # Before they are assigned: who begins to fetch without metadata tries again only after a pause.
    consumer.partitions_for(options.topic)
    positions = positions_of(consumer, partitions, where.start)
    if where.end is not None:
        reader.stop_at(positions_of(consumer, partitions, where.end))
    consumer.assign(partitions)
    for partition, offset in positions.items():
        consumer.seek(partition, offset)


def _emitter(progress: RecordProgress) -> Callable[[Chunk], None]:
    sys.stdout.flush()
    descriptor = sys.stdout.fileno()

    def emit(chunk: Chunk) -> None:
        rest = memoryview(chunk.text)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        progress.add(chunk.records, len(chunk.text))
        progress.show()

    return emit


def _text_of(options: argparse.Namespace, decoding: RecordDecoding | None) -> Callable[[str, int], RecordText]:
    before = (lambda part, text: text) if decoding is None else decoding.before
    if options.output == "json":
        return JsonFormat(options.key_format, options.value_format, before).of_partition
    shape = options.format or RecordFormat("%v")
    style = Style(
        key=before("key", shown(options.key_format)),
        value=before("value", shown(options.value_format)),
        null=os.fsencode(options.null),
        end=b"\n" if options.delimiter is None else options.delimiter.encode("utf-8"),
    )
    return lambda topic, partition: shape.of_partition(topic, partition, style)
