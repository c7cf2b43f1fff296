"""`braidlog produce TOPIC`: records from standard input or files, line by line, or a single one."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from braidlog.cli.interrupts import exit_code_of, interrupts_wait
from braidlog.cli.options import (
    INT32_MAX,
    add_connection,
    add_output,
    connect,
    partition_number,
    separator,
    timestamp_ms,
)
from braidlog.cli.output import report
from braidlog.cli.program import EXIT_OK
from braidlog.cli.records.byte_formats import BadRecord, bytes_of
from braidlog.cli.records.client_options import add_formats, client_settings, remark_on_logs
from braidlog.cli.records.input_lines import BlockReader, JsonLines, TextLines, split_lines
from braidlog.cli.records.json_format import Parsed
from braidlog.cli.records.progress import RecordProgress
from braidlog.cli.records.record_writer import RecordWriter
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.records.compression import CODEC_NAMES
from braidlog.wire.records.encoding import encode_headers

# From a line and the present to a record; raises BadRecord.
Parse = Callable[[bytes, int], Parsed]
# Sends lines; how many, and what is wrong with the next one if that is fewer than all.
SendLines = Callable[[list[bytes]], tuple[int, BadRecord | None]]

_ACKS: Final = ("all", "1", "0", "-1")
_LINGER_MS: Final = 5
# Whether a record is too large is the broker's to say: its topic's settings decide.
_LARGEST_REQUEST: Final = 1 << 30
_BUFFER: Final = 64 << 20
# Settings that have something to say about every single record.
_EACH_RECORD: Final = (
    "interceptor.classes", "key.serializer", "partitioner.class", "partitioner.ignore.keys", "value.serializer"
)  # fmt: skip

_DESCRIPTION: Final = """\
Write records to a topic: one per line of standard input or of files, or the one of --value or --value-file.
Records with a key go to the partition that Kafka's own clients would choose, the others take turns.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.add_argument("topic", metavar="TOPIC", help="created first where the broker allows it")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--value", metavar="TEXT", help="write this one record instead of reading standard input")
    source.add_argument("--value-file", metavar="FILE", help="write one record with the content of this file")
    source.add_argument(
        "--file", metavar="FILE", action="append", help="read lines from here instead (-: standard input); repeatable"
    )
    parser.add_argument("--key", metavar="TEXT", help="of every record")
    parser.add_argument(
        "--key-separator", metavar="TEXT", type=separator, help="each line is KEY, this separator (: or \\t), VALUE"
    )
    parser.add_argument("--delimiter", metavar="TEXT", type=separator, help="between records (default a newline)")
    parser.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="of every record; repeatable"
    )
    parser.add_argument("--null", metavar="TEXT", help="a key or value that is exactly this is null (a tombstone)")
    add_formats(parser)
    parser.add_argument(
        "--input",
        choices=("lines", "json"),
        default="lines",
        help="json: one object per line, as consume --output json prints them",
    )
    parser.add_argument("--partition", metavar="N", type=partition_number, help="write to this partition")
    parser.add_argument(
        "--timestamp", metavar="TIME", type=timestamp_ms, help="of every record: ISO 8601, or milliseconds since 1970"
    )
    parser.add_argument("--acks", choices=_ACKS, help="who must have a record (default all)")
    parser.add_argument("--compression", choices=tuple(CODEC_NAMES.values()), help="default none")
    parser.add_argument(
        "--no-idempotence", action="store_true", help="let a record that is sent again be written again"
    )
    parser.add_argument(
        "--transactional-id",
        metavar="TRANSACTIONAL-ID",
        help="write all of it or nothing: in one transaction of this id",
    )
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    parse = _parser_of(options)
    remark_on_logs()
    with connect(options) as cluster:
        partitions = len(cluster.topic(options.topic, create=True).partitions)
        settings = _settings(options, cluster.settings)
    is_unanswered = str(settings.get("acks")) == "0"
    progress = RecordProgress("sent" if is_unanswered else "written")
    interruption: KeyboardInterrupt | None = None
    with RecordWriter(options.topic, partitions, settings, progress) as writer:
        try:
            try:
                _send_all(options, parse, writer, settings)
                writer.finish()
            except KeyboardInterrupt as problem:
                interruption = problem
                writer.finish(give_up=True)
        except (ProtocolError, BraidlogError) as problem:
            progress.clear()
            raise writer.told_how_far(problem) from problem
    if interruption is not None:
        progress.conclude(interrupted=True)
        return exit_code_of(interruption)
    progress.conclude()
    _report(writer, options, is_unanswered)
    return EXIT_OK


def _settings(options: argparse.Namespace, file: Any) -> dict[str, Any]:
    request_ms = round(options.request_timeout * 1000)
    settings = client_settings(
        options,
        file,
        linger_ms=_LINGER_MS,
        delivery_timeout_ms=min(2 * request_ms + _LINGER_MS, INT32_MAX),
        max_block_ms=request_ms,
        max_request_size=_LARGEST_REQUEST,
        buffer_memory=_BUFFER,
    )
    if options.acks is not None:
        settings["acks"] = options.acks
    if options.compression is not None:
        settings["compression.type"] = options.compression
    if options.no_idempotence:
        settings["enable.idempotence"] = False
    if options.transactional_id is not None:
        settings["transactional.id"] = options.transactional_id
    return settings


# Records in


def _send_all(options: argparse.Namespace, parse: Parse, writer: RecordWriter, settings: Mapping[str, Any]) -> None:
    writer.check_partition(options.partition)
    if options.value is not None:
        _send_one(os.fsencode(options.value), "--value", options, parse, writer)
    elif options.value_file is not None:
        _send_one(Path(options.value_file).read_bytes(), options.value_file, options, parse, writer)
    else:
        if isinstance(parse, TextLines) and parse.is_raw and not any(name in settings for name in _EACH_RECORD):
            send = _in_batches(options, parse, writer)
        else:
            send = _one_by_one(options, parse, writer)
        for name in options.file or ["-"]:
            _send_lines_of(name, options, writer, send)


def _send_one(data: bytes, where: str, options: argparse.Namespace, parse: Parse, writer: RecordWriter) -> None:
    try:
        record, partition = parse(data, _now_ms())
    except BadRecord as problem:
        raise UserError(f"{where}: {problem}") from problem
    writer.send(record, partition if options.partition is None else options.partition)


def _send_lines_of(name: str, options: argparse.Namespace, writer: RecordWriter, send: SendLines) -> None:
    delimiter = b"\n" if options.delimiter is None else options.delimiter.encode()
    descriptor = sys.stdin.fileno() if name == "-" else _opened(name)
    where = "line" if name == "-" else f"{name}: line"
    try:
        reader = BlockReader(descriptor, delimiter, writer.linger_s)
        number = 0
        while not reader.is_at_end:
            reader.wait()
            # What was read is sent, also when an interrupt follows at once.
            with interrupts_wait():
                lines = split_lines(reader.read(), delimiter)
                taken, problem = send(lines)
                number += taken
                if problem is not None:
                    raise UserError(f"{where} {number + 1}: {problem}") from problem
                writer.look()
    finally:
        if name != "-":
            os.close(descriptor)


def _opened(name: str) -> int:
    if os.path.isdir(name):
        # It could be opened, and only reading it would fail, without its name.
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    return os.open(name, os.O_RDONLY)


def _in_batches(options: argparse.Namespace, parse: TextLines, writer: RecordWriter) -> SendLines:
    """Lines whose bytes are the records' own."""
    batches = writer.batches_of_lines(
        headers=encode_headers(parse.headers),
        partition=-1 if options.partition is None else options.partition,
        key=parse.key,
        key_separator=parse.separator,
        null=parse.null,
    )

    def send(lines: list[bytes]) -> tuple[int, BadRecord | None]:
        now = _now_ms() if options.timestamp is None else options.timestamp
        for batch in batches.add(lines, now):
            writer.send_batch(batch)
        return batches.taken, parse.no_separator() if batches.taken < len(lines) else None

    return send


def _one_by_one(options: argparse.Namespace, parse: Parse, writer: RecordWriter) -> SendLines:
    """Lines that have to be understood first, or settings of the producer that want to see each record."""

    def send(lines: list[bytes]) -> tuple[int, BadRecord | None]:
        now = _now_ms()
        for taken, line in enumerate(lines):
            try:
                record, partition = parse(line, now)
            except BadRecord as problem:
                return taken, problem
            writer.send(record, partition if options.partition is None else options.partition)
        return len(lines), None

    return send


def _parser_of(options: argparse.Namespace) -> Parse:
    """From a line and the present to a record, by what the options say."""
    if options.key is not None and options.key_separator is not None:
        raise UserError("give --key or --key-separator, not both")
    headers = tuple(_header(text) for text in options.header)
    is_single = options.value is not None or options.value_file is not None
    if options.input == "json":
        if is_single or options.key is not None or options.key_separator or options.null is not None:
            raise UserError("--input json says key and value itself: leave out --value, --key, --key-separator, --null")
        if (options.key_format, options.value_format) != ("raw", "raw"):
            raise UserError("--input json says how keys and values are written: leave out --key-format, --value-format")
        return JsonLines(headers, options.timestamp)
    return TextLines(
        None if options.key is None else os.fsencode(options.key),
        None if options.key_separator is None or is_single else options.key_separator.encode(),
        None if options.null is None else os.fsencode(options.null),
        headers,
        options.timestamp,
        bytes_of(options.key_format, "key"),
        bytes_of(options.value_format, "value"),
    )


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--header {text}: give NAME=VALUE")
    return name, os.fsencode(value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _report(writer: RecordWriter, options: argparse.Namespace, is_unanswered: bool) -> None:
    count = writer.written
    verb = "sent without waiting for the broker" if is_unanswered else "written"
    partitions = [
        {"partition": partition, "first_offset": first, "last_offset": last}
        for partition, (first, last) in sorted(writer.offsets.items())
    ]
    report(
        f"{count} record{'' if count == 1 else 's'} {verb} to {options.topic}",
        {"topic": options.topic, "records": count, "partitions": partitions},
        options.output,
    )
