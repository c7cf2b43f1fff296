"""Commit log: a table that is lost is restored from the compacted topic of its changes, and then kept up to date.

Every change of a row is a record: its key, and the row as it is now, or nothing once it was deleted. Compaction keeps
at least the last record of each key, so that the topic stays about as small as the table, and a reader that begins at
the start has the table. Restoring is a stream like any other: run again, it applies what has changed since.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from braidlog import Admin
from pyspark_braidlog.examples.environment import Event, ExampleEnvironment, run_example
from pyspark_braidlog.pipeline import decode_json, upsert_sqlite

ITEM: Final = "sku STRING, shelf STRING, stock INT"
# Compaction leaves alone the segment that is being written: with short ones there is something to be cleaned soon.
COMPACTED: Final = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
_OPENING_MS: Final = 1_772_442_000_000
_COMPACTION_S: Final = 20.0
Rows = list[tuple[str, str, int]]


def changes(count: int, seed: int = 7) -> Iterator[Event]:
    """What happens to the stock of a shop: few items, one change a second, some of them deletions."""
    chance = random.Random(seed)
    for number in range(count):
        at_ms = _OPENING_MS + number * 1000
        sku = f"item-{chance.randrange(max(3, count // 10))}"
        if chance.random() < 0.12:
            yield Event(sku, None, timestamp_ms=at_ms)
            continue
        item = {"sku": sku, "shelf": f"{chance.choice('ABC')}{chance.randint(1, 9)}", "stock": chance.randint(0, 500)}
        yield Event(sku, json.dumps(item), timestamp_ms=at_ms)


def rows(records: DataFrame) -> DataFrame:
    """Records of changes in; rows of the table out, with `is_deleted` and the offset that puts them in order."""
    return decode_json(records, ITEM).select(
        F.col("key").cast("string").alias("sku"),
        "value.shelf",
        "value.stock",
        "offset",
        F.col("raw_value").isNull().alias("is_deleted"),
    )


def restore(env: ExampleEnvironment, topic: str, group: str, table: Path) -> None:
    """Bring a SQLite file up to date with the topic, from wherever it is; a new one from the start."""
    incoming = (
        env.spark.readStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("groupId", group)
        .load()
    )
    query = (
        rows(incoming)
        .writeStream.foreachBatch(upsert_sqlite(table, "stock", "sku", order_by="offset", delete_where="is_deleted"))
        .option("checkpointLocation", env.checkpoint(table.stem))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run(env: ExampleEnvironment) -> None:
    topic = env.create_topic("stock", partitions=1, config=COMPACTED)
    group = env.group("restore")
    every = list(changes(env.events))
    first, second = len(every) * 7 // 10, len(every) * 9 // 10
    shop, restored = env.scratch / "shop.sqlite", env.scratch / "restored.sqlite"

    for some in (every[:first], every[first:second]):
        apply(shop, some)
        env.send(topic, some)
    _wait_for_compaction(env, topic, every[:second])
    restore(env, topic, group, restored)
    env.say(f"{len(contents(restored))} rows were restored; as in the shop: {contents(restored) == contents(shop)}")

    apply(shop, every[second:])
    env.send(topic, every[second:])
    restore(env, topic, group, restored)
    env.say(f"{len(contents(restored))} rows, now up to date; as in the shop: {contents(restored) == contents(shop)}")
    env.show("Some of them:", env.spark.createDataFrame(contents(restored), ITEM), rows=8)
    env.show_lag(group)


def apply(table: Path, changes: Iterable[Event]) -> None:
    """What the shop itself does with its table."""
    with closing(sqlite3.connect(table)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, shelf TEXT, stock INTEGER)")
        for change in changes:
            if change.value is None:
                connection.execute("DELETE FROM stock WHERE sku = ?", (change.key,))
            else:
                connection.execute("REPLACE INTO stock VALUES (:sku, :shelf, :stock)", json.loads(change.value))


def contents(table: Path) -> Rows:
    with closing(sqlite3.connect(table)) as connection:
        return connection.execute("SELECT sku, shelf, stock FROM stock ORDER BY sku").fetchall()


def _wait_for_compaction(env: ExampleEnvironment, topic: str, sent: Iterable[Event]) -> None:
    """Until the topic takes less room than what was sent, which is not compressed; or for a while."""
    size = sum(len(each.key or "") + len(each.value or "") for each in sent)
    deadline = time.monotonic() + _COMPACTION_S
    while (now := _size(env.bootstrap, topic)) >= size and time.monotonic() < deadline:
        time.sleep(0.1)
    if now < size:
        env.say(f"The topic was compacted: it takes {now:,} bytes, after {size:,} were sent")
    else:
        env.say("The topic is not compacted yet, which makes no difference to what is restored from it")


def _size(bootstrap: str, topic: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        directories = [each for some in admin.describe_log_dirs().values() for each in some]
    return sum(
        replica.size_bytes
        for directory in directories
        for place, replica in directory.replicas.items()
        if place.topic == topic
    )


if __name__ == "__main__":
    run_example(run, __doc__)
