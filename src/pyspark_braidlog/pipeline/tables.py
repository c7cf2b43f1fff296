"""A compacted topic as a table, and streams enriched from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import quoted


def latest_by_key(records: DataFrame) -> DataFrame:
    """The newest record of each key, without keys whose newest record has no value (deleted).

    Newest is the highest offset, as compaction has it; of a key that is in several partitions or topics, since their
    number changed or a producer chose them otherwise, the one with the latest timestamp. Records without a key are
    left out.
    """
    missing = [name for name in ("key", "value", "partition", "offset", "timestamp") if name not in records.columns]
    if missing:
        raise UserError(
            f"latest_by_key needs the records' column {missing[0]!r}: key, value, partition, offset, timestamp"
        )
    if records.isStreaming:
        raise UserError("latest_by_key reads a topic as it is now: read it with spark.read, not spark.readStream")
    row = F.struct(*map(quoted, records.columns))
    keyed = records.where(F.col("key").isNotNull())
    # Offsets of different topics say nothing about each other.
    places = [name for name in ("topic", "partition") if name in records.columns]
    of_partition = keyed.groupBy("key", *places).agg(F.max_by(row, F.col("offset")).alias("row"))
    newest = of_partition.groupBy("key").agg(
        F.max_by(F.col("row"), F.struct("row.timestamp", "row.offset", *places)).alias("row")
    )
    return newest.where(F.col("row.value").isNotNull()).select("row.*")


def enrich(
    rows: DataFrame,
    table: DataFrame,
    on: str | Mapping[str, str],
    *,
    take: Sequence[str] | None = None,
    prefix: str = "",
    how: str = "left",
) -> DataFrame:
    """Each row with the columns of the table's row that has the same key.

    `on` is a column that both have, or {column of the rows: column of the table}; keys are compared as text when one
    of them is bytes or text and the other is not. `take` chooses columns of the table (all but the key), `prefix`
    renames them. `how` is "left" (rows without a match stay, with nulls) or "inner".

    The table must have a key once, as that of `latest_by_key` has. A stream sees it as it was when the query first
    read it, until the query is started anew; `refreshed` within foreachBatch keeps up with its changes.
    """
    if how not in ("left", "inner"):
        raise UserError(f"enrich joins how='left' or how='inner', not {how!r}")
    if table.isStreaming:
        raise UserError(
            "enrich takes the table from spark.read, for instance latest_by_key(spark.read…), not from a stream"
        )
    pairs = {on: on} if isinstance(on, str) else dict(on)
    for frame, names, which in ((rows, pairs.keys(), "rows"), (table, pairs.values(), "table")):
        absent = [name for name in names if name not in frame.columns]
        if absent:
            raise UserError(f"enrich: the {which} have no column {absent[0]!r} among {', '.join(frame.columns)}")
    taken = [name for name in table.columns if name not in pairs.values()] if take is None else list(take)
    absent = [name for name in taken if name not in table.columns]
    if absent:
        raise UserError(f"enrich: the table has no column {absent[0]!r} among {', '.join(table.columns)}")
    clash = sorted({prefix + name for name in taken} & set(rows.columns))
    if clash:
        raise UserError(f"enrich: the rows have a column {clash[0]!r} already; give a prefix, or take other columns")
    keys = {theirs: f"__key_{number}" for number, theirs in enumerate(pairs.values())}
    as_text = {theirs for ours, theirs in pairs.items() if _differ(rows, ours, table, theirs)}
    side = table.select(
        *(_key(table, theirs, theirs in as_text).alias(name) for theirs, name in keys.items()),
        *(quoted(name).alias(prefix + name) for name in taken),
    )
    condition = [_key(rows, ours, theirs in as_text) == F.col(keys[theirs]) for ours, theirs in pairs.items()]
    joined = rows.join(side, condition, how)
    return joined.select(*map(quoted, rows.columns), *(quoted(prefix + name) for name in taken))


def refreshed(read: Callable[[], DataFrame], every_s: float) -> Callable[[], DataFrame]:
    """A table kept in Spark's cache and read again when it is older than this; for use inside foreachBatch.

    def users() -> DataFrame:  # with a load of its own: Spark settles once a load up to where it reads
        return latest_by_key(spark.read.format("braidlog")….load())

    current = refreshed(users, every_s=300)
    clicks.writeStream.foreachBatch(lambda batch, number: enrich(batch, current(), on=…).write…)
    """
    kept: list[tuple[float, DataFrame]] = []

    def current() -> DataFrame:
        now = time.monotonic()
        if not kept or now - kept[0][0] >= every_s:
            table = read().persist()
            table.count()
            for _, old in kept:
                old.unpersist()
            kept[:] = [(now, table)]
        return kept[0][1]

    return current


def _differ(rows: DataFrame, ours: str, table: DataFrame, theirs: str) -> bool:
    """Bytes or text against something else: Spark would take the text for a number, and fail where it is none."""
    kinds = {rows.schema[ours].dataType.typeName(), table.schema[theirs].dataType.typeName()}
    return len(kinds) == 2 and not kinds.isdisjoint(("binary", "string"))


def _key(frame: DataFrame, name: str, as_text: bool) -> Column:
    return quoted(name).cast("string") if as_text else quoted(name)
