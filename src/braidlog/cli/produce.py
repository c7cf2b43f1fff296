"""`braidlog produce TOPIC`: records from standard input, line by line, or a single one from the command line."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Final, NoReturn

from braidlog.cli.options import add_connection, add_output, connect, not_negative, separator, timestamp_ms
from braidlog.cli.output import Progress, report
from braidlog.cli.record_json import BadRecord, Parsed
from braidlog.cli.record_lines import JsonLines, TextLines, read_lines
from braidlog.client.producing import ACKS_ALL, ACKS_LEADER, ACKS_NONE, TopicWriter
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.records.compression import CODEC_NAMES, codec_named

_ACKS: Final = {"0": ACKS_NONE, "1": ACKS_LEADER, "all": ACKS_ALL, "-1": ACKS_ALL}

_DESCRIPTION: Final = """\
Write records to a topic: one per line of standard input, or the one of --value.
Records with a key go to the partition that Kafka's own clients would choose, the others take turns.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.add_argument("topic", metavar="TOPIC", help="created first where the broker allows it")
    parser.add_argument("--value", metavar="TEXT", help="write this one record instead of reading standard input")
    parser.add_argument("--key", metavar="TEXT", help="of every record")
    parser.add_argument(
        "--key-separator", metavar="TEXT", type=separator, help="each line is KEY, this separator (: or \\t), VALUE"
    )
    parser.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="of every record; repeatable"
    )
    parser.add_argument("--null", metavar="TEXT", help="a key or value that is exactly this is null (a tombstone)")
    parser.add_argument(
        "--input",
        choices=("lines", "json"),
        default="lines",
        help="json: one object per line, as consume --output json prints them",
    )
    parser.add_argument("--partition", metavar="N", type=not_negative, help="write to this partition")
    parser.add_argument(
        "--timestamp", metavar="TIME", type=timestamp_ms, help="of every record: ISO 8601, or milliseconds since 1970"
    )
    parser.add_argument("--acks", choices=tuple(_ACKS), default="all", help="who must have a record (default all)")
    parser.add_argument("--compression", choices=tuple(CODEC_NAMES.values()), default="none", help="default none")
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    parse = _parser_of(options)
    with connect(options) as cluster:
        writer = TopicWriter(
            cluster, options.topic, acks=_ACKS[options.acks], codec=codec_named(options.compression)
        )
        progress = Progress()
        try:
            if options.value is not None:
                _add(writer, parse(os.fsencode(options.value), _now_ms()), options.partition)
            else:
                _write_lines(writer, parse, options.partition, progress)
            writer.flush()
        except (ProtocolError, BraidlogError) as problem:
            progress.clear()
            _tell_how_far(problem, writer.written)
        progress.clear()
    _report(writer, options)
    return 0


def _write_lines(
    writer: TopicWriter, parse: Callable[[bytes, int], Parsed], partition: int | None, progress: Progress
) -> None:
    number = 0
    for lines in read_lines(sys.stdin.fileno()):
        if not lines:
            writer.flush()
            continue
        now = _now_ms()
        for line in lines:
            number += 1
            try:
                parsed = parse(line, now)
            except BadRecord as problem:
                raise UserError(f"line {number}: {problem}") from problem
            _add(writer, parsed, partition)
        progress.show(f"{writer.written} records written")


def _add(writer: TopicWriter, parsed: Parsed, partition: int | None) -> None:
    writer.add(parsed.record, partition if partition is not None else parsed.partition)


def _parser_of(options: argparse.Namespace) -> Callable[[bytes, int], Parsed]:
    """From a line and the present to a record, by what the options say."""
    if options.key is not None and options.key_separator is not None:
        raise UserError("give --key or --key-separator, not both")
    headers = tuple(_header(text) for text in options.header)
    if options.input == "json":
        if options.value is not None or options.key is not None or options.key_separator or options.null is not None:
            raise UserError("--input json says key and value itself: leave out --value, --key, --key-separator, --null")
        return JsonLines(headers, options.timestamp)
    return TextLines(
        None if options.key is None else os.fsencode(options.key),
        None if options.key_separator is None or options.value is not None else options.key_separator.encode(),
        None if options.null is None else os.fsencode(options.null),
        headers,
        options.timestamp,
    )


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--header {text}: give NAME=VALUE")
    return name, os.fsencode(value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _tell_how_far(problem: Exception, written: int) -> NoReturn:
    """Re-raise with how many records a second try would write twice."""
    if not written:
        raise problem
    text = problem.message if isinstance(problem, ProtocolError) else str(problem)
    told = f"{text or 'the broker refused'}; {written} records were written before it"
    raise (type(problem)(told) if isinstance(problem, ProtocolError) else UserError(told)) from problem


def _report(writer: TopicWriter, options: argparse.Namespace) -> None:
    count = writer.written
    verb = "sent without waiting for the broker" if _ACKS[options.acks] == ACKS_NONE else "written"
    partitions = [
        {"partition": partition, "first_offset": first, "last_offset": last}
        for partition, (first, last) in sorted(writer.offsets.items())
    ]
    report(
        f"{count} record{'' if count == 1 else 's'} {verb} to {options.topic}",
        {"topic": options.topic, "records": count, "partitions": partitions},
        options.output,
    )
