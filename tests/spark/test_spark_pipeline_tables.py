"""Compacted topics as tables, rows enriched from them, and upserts into SQLite."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline import enrich, latest_by_key, refreshed, upsert_sqlite

NOON = datetime(2026, 5, 4, 12, 0)
RECORD = "key binary, value binary, partition int, offset long, timestamp timestamp"


def table(spark: SparkSession, *rows: tuple[bytes | None, bytes | None, int, int, int]) -> DataFrame:
    timed = [(*row[:4], NOON + timedelta(minutes=row[4])) for row in rows]
    return spark.createDataFrame(timed, RECORD)


def test_the_newest_value_of_each_key_is_the_table(spark: SparkSession) -> None:
    records = table(
        spark,
        (b"a", b"old", 0, 1, 9),
        (b"a", b"new", 0, 2, 0),  # the offset decides within a partition, whatever the clock said
        (b"b", b"gone", 1, 0, 0),
        (b"b", None, 1, 5, 1),
        (b"c", b"again", 1, 7, 3),
        (b"c", None, 1, 6, 2),
        (b"d", b"before the topic grew", 0, 90, 1),
        (b"d", b"after", 2, 3, 2),
        (None, b"no key", 0, 99, 99),
    )
    found = latest_by_key(records)
    assert found.columns == records.columns
    assert {bytes(row.key): bytes(row.value) for row in found.collect()} == {
        b"a": b"new",
        b"c": b"again",
        b"d": b"after",
    }
    with pytest.raises(UserError, match="column 'offset'"):
        latest_by_key(records.drop("offset"))


def test_offsets_of_different_topics_are_not_compared(spark: SparkSession) -> None:
    old = table(spark, (b"a", b"old", 0, 900, 1), (b"b", b"old", 0, 901, 1)).withColumn("topic", F.lit("users.v1"))
    new = table(spark, (b"a", b"new", 0, 5, 9), (b"b", None, 0, 6, 9)).withColumn("topic", F.lit("users.v2"))
    (row,) = latest_by_key(old.union(new)).collect()
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"a", b"new", "users.v2")


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_numbers_meet_keys_that_are_text(spark: SparkSession, kind: str) -> None:
    users = spark.createDataFrame([("1", "ann"), ("no number", "bob")], "key string, name string")
    clicks = spark.createDataFrame([(1,), (2,), (None,)], "user long")
    found = enrich(clicks, users.withColumn("key", F.col("key").cast(kind)), on={"user": "key"})
    assert sorted(map(tuple, found.collect()), key=str) == [(1, "ann"), (2, None), (None, None)]


def test_rows_get_the_tables_columns(spark: SparkSession) -> None:
    users = spark.createDataFrame([(b"1", "ann", "ch"), (b"2", "bob", "at")], "key binary, name string, country string")
    clicks = spark.createDataFrame([("1", "/a"), ("3", "/b"), ("2", "/c")], "user string, name string")
    found = enrich(clicks, users, on={"user": "key"}, prefix="user_")
    assert found.columns == ["user", "name", "user_name", "user_country"]
    assert sorted(found.collect(), key=lambda row: row.name) == [
        ("1", "/a", "ann", "ch"),
        ("3", "/b", None, None),
        ("2", "/c", "bob", "at"),
    ]
    inner = enrich(clicks, users, on={"user": "key"}, take=["country"], how="inner")
    assert sorted(inner.collect()) == [("1", "/a", "ch"), ("2", "/c", "at")]
    with pytest.raises(UserError, match="have a column 'name' already; give a prefix"):
        enrich(clicks, users, on={"user": "key"})
    with pytest.raises(UserError, match="have no column 'id'"):
        enrich(clicks, users, on="id")


def test_a_refreshed_table_is_read_again_when_it_is_old(spark: SparkSession) -> None:
    reads: list[int] = []

    def read() -> DataFrame:
        reads.append(1)
        return spark.range(len(reads))

    kept = refreshed(read, every_s=3600)
    assert [kept().count(), kept().count(), len(reads)] == [1, 1, 1]
    always = refreshed(read, every_s=0)
    assert [always().count(), always().count(), len(reads)] == [2, 3, 3]


def rows_of(path: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_upserts_insert_replace_and_delete(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    write = upsert_sqlite(path, "stock", "id", order_by="offset", delete_where="amount is null", query="q")
    columns = "id int, amount int, offset long"
    write(spark.createDataFrame([(1, 5, 0), (2, 6, 1), (1, 7, 2), (3, 1, 3)], columns), 0)
    assert rows_of(path, "select id, amount from stock order by id") == [(1, 7), (2, 6), (3, 1)]
    write(spark.createDataFrame([(2, 9, 4), (3, None, 5), (4, None, 6), (4, 2, 7)], columns), 1)
    expected = [(1, 7), (2, 9), (4, 2)]
    assert rows_of(path, "select id, amount from stock order by id") == expected
    # The same batch again, or an older one, changes nothing, whatever is in it.
    write(spark.createDataFrame([(2, 100, 4)], columns), 1)
    write(spark.createDataFrame([(2, 100, 4)], columns), 0)
    assert rows_of(path, "select id, amount from stock order by id") == expected
    # Another query's batches are counted for themselves.
    upsert_sqlite(path, "stock", "id", query="other")(spark.createDataFrame([(5, 5, 0)], columns), 0)
    assert len(rows_of(path, "select * from stock")) == 4


def test_a_refused_batch_leaves_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    write = upsert_sqlite(path, "stock", ["id"], query="q")
    write(spark.createDataFrame([(1, 1)], "id int, amount int"), 0)
    with pytest.raises(UserError, match="batch 1 has several rows of one key for stock"):
        write(spark.createDataFrame([(2, 1), (2, 2)], "id int, amount int"), 1)
    with pytest.raises(UserError, match="without a key"):
        write(spark.createDataFrame([(2, 1), (None, 2)], "id int, amount int"), 1)
    with pytest.raises(UserError, match=r"SQLite refuses batch 1 for stock .*colour"):
        write(spark.createDataFrame([(2, 1, "red")], "id int, amount int, colour string"), 1)
    with pytest.raises(UserError, match="names a column 'id' that the rows do not have"):
        write(spark.createDataFrame([(2,)], "amount int"), 1)
    assert rows_of(path, "select * from stock") == [(1, 1)]
    write(spark.createDataFrame([(2, 2)], "id int, amount int"), 1)
    assert rows_of(path, "select * from stock order by id") == [(1, 1), (2, 2)]


def test_sqlite_gets_every_type(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "types.db"
    frame = spark.createDataFrame(
        [("k", True, 1.5, b"\x00", Decimal("1.50"), NOON.date(), NOON, {"a": 1}, [1], None)],
        "k string, b boolean, f double, x binary, d decimal(9,2), day date, at timestamp, m map<string,int>,"
        " l array<int>, n string",
    )
    upsert_sqlite(path, "t", "k", query="q")(frame.withColumn("s", F.struct("k", "f")), 0)
    assert rows_of(path, "select * from t") == [
        (
            "k",
            1,
            1.5,
            b"\x00",
            "1.50",
            "2026-05-04",
            "2026-05-04T12:00:00.000000Z",
            '{"a":1}',
            "[1]",
            None,
            '{"k":"k","f":1.5}',
        )
    ]


def test_a_stream_upserts_once_though_its_last_batch_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """The commit log loses the last batch, as in a crash after the upsert: Spark runs it again on other content."""
    path, files, checkpoint = tmp_path / "shop.db", tmp_path / "files", tmp_path / "checkpoint"

    def run(write: Any) -> None:
        stream = spark.readStream.schema("id int, amount int").parquet(str(files))
        started = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        started.trigger(availableNow=True).start().awaitTermination(120)

    spark.createDataFrame([(1, 5)], "id int, amount int").coalesce(1).write.parquet(str(files))
    write = upsert_sqlite(path, "stock", "id")
    run(write)
    assert rows_of(path, "select * from stock") == [(1, 5)]
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    calls: list[int] = []

    def changed(batch: DataFrame, batch_id: int) -> None:
        calls.append(batch_id)
        write(batch.withColumn("amount", F.lit(77)), batch_id)

    run(changed)
    assert calls == [0]
    assert rows_of(path, "select * from stock") == [(1, 5)]


def test_outside_of_a_stream_a_query_must_be_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give query="):
        upsert_sqlite(tmp_path / "x.db", "t", "id")(spark.range(1), 0)
