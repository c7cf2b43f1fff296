"""Upserts into Parquet tables and, by JDBC, into databases: Derby, which comes with Spark, and SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from tools.peers.maven import Artifact, PeerMissing, fetch_classpath

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline import read_parquet_table, upsert_delta, upsert_jdbc, upsert_parquet
from pyspark_braidlog.pipeline.upsert.jdbc import _applied, _connection, _note
from pyspark_braidlog.pipeline.upsert.sql import DIALECTS

STOCK = "id string, amount int, tags array<string>, offset long"
Row = tuple[str | None, int | None, list[str], int]
FIRST: list[Row] = [("a", 5, [], 0), ("b", 6, ["x"], 1), ("a", 7, [], 2), ("c", 1, [], 3)]
SECOND: list[Row] = [("b", 9, [], 4), ("c", None, [], 5), ("d", None, [], 6), ("d", 2, [], 7)]
OTHER: list[Row] = [("b", 100, [], 4)]


def test_parquet_tables_are_replaced_whole(spark: SparkSession, tmp_path: Path) -> None:
    write = upsert_parquet(tmp_path / "t", "id", order_by="offset", delete_where="amount is null", query="q/1")

    def rows() -> list[tuple[str, int]]:
        return sorted((row.id, row.amount) for row in read_parquet_table(spark, tmp_path / "t").collect())

    with pytest.raises(UserError, match="no table under"):
        rows()
    write(spark.createDataFrame(FIRST, STOCK), 0)
    assert rows() == [("a", 7), ("b", 6), ("c", 1)]
    old = read_parquet_table(spark, tmp_path / "t")
    write(spark.createDataFrame(SECOND, STOCK), 1)
    assert rows() == [("a", 7), ("b", 9), ("d", 2)]
    assert sorted(row.id for row in old.collect()) == ["a", "b", "c"], "the version before is still there to read"
    for batch_id in (1, 0):
        write(spark.createDataFrame(OTHER, STOCK), batch_id)
    assert rows() == [("a", 7), ("b", 9), ("d", 2)]
    # Another query, and a column more.
    other = upsert_parquet(tmp_path / "t", "id", query="other")
    other(spark.createDataFrame([("e", 1, "new")], "id string, amount int, colour string"), 0)
    assert rows() == [("a", 7), ("b", 9), ("d", 2), ("e", 1)]
    write(spark.createDataFrame(OTHER, STOCK), 1)
    assert ("b", 9) in rows()
    assert sorted(each.name for each in (tmp_path / "t").iterdir()) == ["0@other", "1@q%2F1", "current"]


def test_parquet_refuses_what_it_could_not_find_again(spark: SparkSession, tmp_path: Path) -> None:
    write = upsert_parquet(tmp_path / "t", "id", query="q")
    with pytest.raises(UserError, match="several rows of one key"):
        write(spark.createDataFrame(FIRST, STOCK), 0)
    with pytest.raises(UserError, match=r"rows for .* without a key"):
        write(spark.createDataFrame([(None, 1, [], 0)], STOCK), 0)
    assert not (tmp_path / "t" / "current").exists()
    with pytest.raises(UserError, match="take upsert_delta"):
        upsert_parquet("s3://bucket/t", "id")


@pytest.fixture(scope="module")
def derby(spark: SparkSession) -> str:
    url = "jdbc:derby:memory:shop"
    connection = spark._jvm.java.sql.DriverManager.getConnection(url + ";create=true")  # type: ignore[union-attr]
    connection.createStatement().executeUpdate(
        'CREATE TABLE "stock" ("id" VARCHAR(20) PRIMARY KEY, "amount" INT, "tags" VARCHAR(99), "offset" BIGINT)'
    )
    connection.close()
    return url


def stock(spark: SparkSession, url: str) -> list[tuple[Any, ...]]:
    found = spark.read.jdbc(url, '"stock"').collect()
    return sorted((row.id, row.amount, row.tags) for row in found)


def test_databases_by_jdbc(spark: SparkSession, derby: str) -> None:
    write = upsert_jdbc(derby, "stock", "id", order_by="offset", delete_where="amount is null", query="q")
    write(spark.createDataFrame(FIRST, STOCK), 0)
    assert stock(spark, derby) == [("a", 7, "[]"), ("b", 6, '["x"]'), ("c", 1, "[]")]
    write(spark.createDataFrame(SECOND, STOCK), 1)
    expected = [("a", 7, "[]"), ("b", 9, "[]"), ("d", 2, "[]")]
    assert stock(spark, derby) == expected
    for batch_id in (1, 0):
        write(spark.createDataFrame(OTHER, STOCK), batch_id)
    assert stock(spark, derby) == expected
    with pytest.raises(UserError, match="batch 2 has several rows of one key for stock"):
        upsert_jdbc(derby, "stock", "id", query="q")(spark.createDataFrame(FIRST, STOCK), 2)
    with pytest.raises(UserError, match=r"the database refuses a staging table like stock: .*colour"):
        write(spark.createDataFrame([("z", 1, 9, "x")], "id string, amount int, offset long, colour string"), 2)
    assert stock(spark, derby) == expected
    with pytest.raises(UserError, match="no table none with id: create it"):
        upsert_jdbc(derby, "none", "id", query="q")(spark.createDataFrame(OTHER, STOCK), 0)
    left = spark.read.jdbc(derby, "SYS.SYSTABLES").where("TABLETYPE = 'T'").collect()
    assert {row.TABLENAME for row in left} >= {"stock", "braidlog_upserts"}


def test_a_driver_that_comes_late_is_refused(spark: SparkSession, derby: str) -> None:
    """It looked which batch the table has before the other driver wrote, and notes its own after it."""
    frame = spark.createDataFrame(OTHER, STOCK)
    write = upsert_jdbc(derby, "stock", "id", query="late")
    write(frame, 5)
    for batch_id in (5, 4):
        with _connection(frame, derby, {}) as connection, pytest.raises(UserError, match="stop it"):
            _note(connection, DIALECTS["derby"], "late", "stock", batch_id)
    with _connection(frame, derby, {}) as connection:
        assert _applied(connection, DIALECTS["derby"], "late", "stock") == 5
    with pytest.raises(UserError, match="rows for stock without a key"):
        upsert_jdbc(derby, "stock", "amount", query="q2")(spark.createDataFrame([("x", None, [], 0)], STOCK), 0)


def test_a_database_that_cannot_be_reached_is_told(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="cannot connect to the database by JDBC"):
        upsert_jdbc("jdbc:derby:memory:missing", "t", "id", query="q")(spark.range(1), 0)
    with pytest.raises(UserError, match=r"cannot connect to the database by JDBC: .*jdbc:postgresql:…") as refused:
        upsert_jdbc("jdbc:postgresql://127.0.0.1:1/x?password=s3cret", "t", "id", query="q")(spark.range(1), 0)
    assert "s3cret" not in str(refused.value)


def test_delta_is_asked_for_in_words(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="upsert_delta needs Delta"):
        upsert_delta("/nowhere", "id", query="q")(spark.range(1), 0)


class Delta:
    """A table that is there, and takes what it is given."""

    merged: ClassVar[list[str]] = []

    @classmethod
    def isDeltaTable(cls, session: SparkSession, path: str) -> bool:
        return True

    @classmethod
    def forPath(cls, session: SparkSession, path: str) -> Delta:
        return cls()

    def merge(self, source: object, condition: str) -> Delta:
        self.merged.append(condition)
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


def test_delta_is_given_one_row_of_a_key(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a key that it does not have yet it would insert them all."""
    monkeypatch.setitem(sys.modules, "delta.tables", SimpleNamespace(DeltaTable=Delta))
    with pytest.raises(UserError, match="batch 0 has several rows of one key for /t"):
        upsert_delta("/t", "id", query="q")(spark.createDataFrame(FIRST, STOCK), 0)
    assert Delta.merged == []
    upsert_delta("/t", "id", order_by="offset", query="q")(spark.createDataFrame(FIRST, STOCK), 0)
    assert Delta.merged == ["t.`id` = s.`id`"]


SQLITE_PROGRAM = """
import sqlite3, sys
from pyspark.sql import SparkSession
from pyspark_braidlog.pipeline import upsert_jdbc
path, jar = sys.argv[1:]
with sqlite3.connect(path) as made:
    made.execute("create table stock (id text primary key, amount int)")
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", jar)
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
driver = {"driver": "org.sqlite.JDBC"}
write = upsert_jdbc(f"jdbc:sqlite:{path}", "stock", "id", query="q", delete_where="amount < 0", properties=driver)
for batch_id, rows in ((0, [("a", 1), ("b", 2), ("c", 3)]), (1, [("b", 7), ("c", -1)]), (1, [("b", 8)])):
    write(spark.createDataFrame(rows, "id string, amount int").coalesce(1), batch_id)
with sqlite3.connect(path) as made:
    print("found", made.execute("select * from stock order by id").fetchall())
    print("tables", made.execute("select name from sqlite_master where type = 'table' order by 1").fetchall())
"""


@pytest.mark.peer
def test_sqlite_by_jdbc(tmp_path: Path) -> None:
    try:
        libs = fetch_classpath("sqlite-jdbc-3.50.3.0", (Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0"),))
    except PeerMissing as missing:
        pytest.skip(str(missing))
    jars = ",".join(str(jar) for jar in libs.glob("*.jar"))
    done = subprocess.run(
        [sys.executable, "-c", SQLITE_PROGRAM, str(tmp_path / "shop.db"), jars],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "found [('a', 1), ('b', 7)]" in done.stdout, done.stdout + done.stderr
    assert "tables [('braidlog_upserts',), ('stock',)]" in done.stdout
