"""Log aggregation: the lines of many services end in one place, as Parquet files by day and service.

The query runs, takes what has come, and ends; a second run goes on where the first has ended. Spark's own file sink
takes every batch once, and what the lines look like is up to the reader: one that does not parse is kept as it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_braidlog.examples.environment import Event, ExampleEnvironment, run_example

# 2026-03-02T23:59:58.120Z ERROR checkout-2 payment refused
LINE: Final = r"^(\d{4}-\d\d-\d\dT\S+Z) ([A-Z]+) ([a-z]+)-(\d+) (.*)$"
UNPARSED: Final = "unparsed"
_EVENING: Final = datetime(2026, 3, 2, 23, 50, tzinfo=UTC)
_SERVICES: Final = ("checkout", "search", "mail")
_LEVELS: Final = ("DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR")
_MESSAGES: Final = ("took 12 ms", "cache is cold", "payment refused: card expired", 'user said: "what?"', "ünïcode ✓")


def lines(count: int, first: int = 0, seed: int = 4) -> Iterator[Event]:
    """What services say around midnight, a line in a second; now and then a stack trace is among it."""
    chance = random.Random(seed + first)
    for number in range(first, first + count):
        at = (_EVENING + timedelta(seconds=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        host = f"{chance.choice(_SERVICES)}-{chance.randint(1, 3)}"
        line = f"{at} {chance.choice(_LEVELS)} {host} {chance.choice(_MESSAGES)}"
        yield Event(host, "    at Checkout.pay(Checkout.java:17)" if chance.random() < 0.03 else line)


def parsed(records: DataFrame) -> DataFrame:
    """Records of log lines in; one row a line out, with the day and the service to file it under."""
    line = F.col("value").cast("string")

    def piece(group: int) -> Column:
        return F.nullif(F.regexp_extract(line, LINE, group), F.lit(""))

    at = F.try_to_timestamp(piece(1))
    return records.select(
        at.alias("at"),
        piece(2).alias("level"),
        piece(4).cast("int").alias("instance"),
        F.coalesce(piece(5), line).alias("message"),
        F.coalesce(F.to_date(at), F.to_date("timestamp")).alias("day"),
        F.coalesce(piece(3), F.lit(UNPARSED)).alias("service"),
        # Where the line came from: with it, a line can be found in the topic again.
        "partition",
        "offset",
    )


def collect(env: ExampleEnvironment, topic: str, group: str, archive: Path) -> None:
    """File everything that has come since the last time; fit to be run by cron."""
    incoming = (
        env.spark.readStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("groupId", group)
        .load()
    )
    query = (
        parsed(incoming)
        .writeStream.format("parquet")
        .option("path", str(archive))
        .option("checkpointLocation", env.checkpoint("archive"))
        .partitionBy("day", "service")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run(env: ExampleEnvironment) -> None:
    topic = env.create_topic("lines")
    group = env.group("archive")
    archive = env.scratch / "archive"
    half = env.events // 2
    for first, count in ((0, half), (half, env.events - half)):
        env.send(topic, lines(count, first))
        collect(env, topic, group, archive)

    kept = env.spark.read.parquet(str(archive))
    env.show(
        "Lines by day, service and level:",
        kept.groupBy("day", "service", "level").count().orderBy("day", "service", "level"),
        rows=40,
    )
    env.say(f"They are kept in {sum(1 for _ in archive.rglob('*.parquet'))} Parquet files:")
    for directory in sorted(archive.glob("day=*/service=*")):
        env.say(f"  {directory.relative_to(archive)}")
    env.show_lag(group)


if __name__ == "__main__":
    run_example(run, __doc__)
