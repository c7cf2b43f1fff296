"""`braidlog log-dirs`: the data directories of brokers, how full they are, and what lies in them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from braidlog.cli.options import add_connection, add_output, broker_number, connect
from braidlog.cli.output import remark_failure, show, size_text
from braidlog.cli.topic_selection import selected_partitions, topic_selection
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.log_dirs import LogDir

_DIRECTORIES: Final = ("broker", "directory", "state", "replicas", "size", "usable", "total")
_REPLICAS: Final = ("broker", "directory", "topic", "partition", "size", "offset_lag", "future")
_EPILOG: Final = """\
SIZE is what the replicas take; USABLE and TOTAL are of the disk that the directory is on, where the broker tells.
Exit code 1 when a directory is offline or a broker cannot be asked.

examples:
  braidlog log-dirs
  braidlog log-dirs --broker 1 --partitions            every replica on broker 1
  braidlog log-dirs --topic orders:0,1 --output json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "--broker", metavar="ID", type=broker_number, action="append", help="only of this broker; repeatable"
    )
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        type=topic_selection,
        action="append",
        default=[],
        help="only replicas of this topic, or TOPIC:0,1 of these partitions, one by one; repeatable",
    )
    parser.add_argument("--partitions", action="store_true", help="the replicas in each directory, one by one")
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        partitions = selected_partitions(cluster, options.topic) if options.topic else None
        brokers = None if options.broker is None else sorted(set(options.broker))
        found = admin_over(cluster).describe_log_dirs(brokers, partitions=partitions)
    failed = len(found.errors)
    for problem in found.errors.values():
        remark_failure(problem)
    for directories in found.succeeded.values():
        for each in directories:
            if each.error is not None:
                remark_failure(each.error)
                failed += 1
    if options.partitions or options.topic:
        show(list(_replica_rows(found.succeeded, options.output)), options.output, _REPLICAS)
    else:
        show(list(_directory_rows(found.succeeded, options.output)), options.output, _DIRECTORIES)
    return 1 if failed else 0


def _directory_rows(found: Mapping[int, tuple[LogDir, ...]], output: str) -> Iterator[dict[str, Any]]:
    for broker_id, directories in found.items():
        for each in directories:
            yield {
                "broker": broker_id,
                "directory": each.path,
                "state": "online" if each.error is None else "offline",
                "replicas": len(each.replicas),
                **_sizes(
                    output,
                    size=sum(replica.size_bytes for replica in each.replicas.values()),
                    usable=each.usable_bytes,
                    total=each.total_bytes,
                ),
            }


def _replica_rows(found: Mapping[int, tuple[LogDir, ...]], output: str) -> Iterator[dict[str, Any]]:
    for broker_id, directories in found.items():
        for each in directories:
            for place, replica in each.replicas.items():
                yield {
                    "broker": broker_id,
                    "directory": each.path,
                    "topic": place.topic,
                    "partition": place.partition,
                    **_sizes(output, size=replica.size_bytes),
                    "offset_lag": replica.offset_lag,
                    "future": replica.is_future,
                }


def _sizes(output: str, **sizes: int | None) -> dict[str, Any]:
    """For scripts in bytes, for people in units that can be read."""
    if output == "json":
        return {f"{name}_bytes": size for name, size in sizes.items()}
    return {name: size_text(size) for name, size in sizes.items()}
