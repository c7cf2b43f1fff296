"""Topics in SQL: tables and temporary views, with SELECT and INSERT INTO."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog.testing import Broker
from pyspark_braidlog.errors import clear_error


@pytest.fixture
def topic(braidlog_broker: Broker) -> str:
    name = braidlog_broker.create_topic()
    producer = braidlog_broker.producer()
    for number in range(3):
        producer.send(name, value=b"%d" % number, key=b"k")
    producer.flush()
    return name


@pytest.fixture
def table(spark: Any) -> Iterator[str]:
    yield "orders"
    spark.catalog.dropTempView("orders")
    spark.sql("DROP TABLE IF EXISTS orders")


def options(broker: Broker, topic: str, **more: str) -> str:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "topic": topic, **more}
    return ", ".join(f"`{name}` '{value}'" for name, value in given.items())


def values(spark: Any, table: str) -> list[str]:
    rows = spark.sql(f"SELECT CAST(value AS STRING) AS value FROM {table} ORDER BY offset").collect()
    return [row.value for row in rows]


@pytest.mark.parametrize("kind", ["TABLE", "TEMPORARY VIEW"])
def test_select_and_insert(spark: Any, braidlog_broker: Broker, topic: str, table: str, kind: str) -> None:
    more = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    create = f"{kind} {table} USING braidlog OPTIONS ({options(braidlog_broker, topic, **more)})"
    spark.sql(f"CREATE {create}")
    assert values(spark, table) == ["0", "1", "2"]
    spark.sql(f"INSERT INTO {table} (key, value) VALUES (CAST('k' AS BINARY), CAST('3' AS BINARY))")
    spark.sql(f"INSERT INTO {table} (value) SELECT CAST(CAST(offset + 4 AS STRING) AS BINARY) FROM {table} LIMIT 1")
    if kind != "TABLE":
        # Like a DataFrame, a view is of the records that were there at its first use.
        assert values(spark, table) == ["0", "1", "2"]
        spark.sql(f"CREATE OR REPLACE {create}")
    assert values(spark, table) == ["0", "1", "2", "3", "4"]
    last = spark.sql(f"SELECT * FROM {table} WHERE offset = 3").first()
    assert (bytes(last.key), last.topic, last.headers) == (b"k", topic, None)
    with pytest.raises(Exception, match="overwrite") as refused:
        spark.sql(f"INSERT OVERWRITE {table} (value) VALUES (CAST('x' AS BINARY))")
    assert "topics are only appended to" in clear_error(refused.value)


def test_a_table_from_the_catalog_s_own_call_and_as_a_stream(
    spark: Any, braidlog_broker: Broker, topic: str, table: str, tmp_path: Path
) -> None:
    given = {"kafka.bootstrap.servers": braidlog_broker.bootstrap_servers, "subscribe": topic}
    spark.catalog.createTable(table, source="braidlog", **given, startingOffsets="earliest")
    assert spark.table(table).count() == 3
    # What a query says besides is added to what the table has.
    assert spark.read.option("endingOffsets", f'{{"{topic}": {{"0": 1}}}}').table(table).count() == 1
    assert spark.sql(f"SELECT * FROM {table} WITH (endingTimestamp = 1)").count() == 0
    rows: list[int] = []
    writer = spark.readStream.table(table).writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert sum(rows) == 3
    with pytest.raises(Exception, match="rows whose topic is null"):
        spark.sql(f"INSERT INTO {table} (value) VALUES (CAST('x' AS BINARY))")


def test_a_copy_never_lands_in_the_topic_that_is_read(
    spark: Any, braidlog_broker: Broker, topic: str, table: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE {table} USING braidlog OPTIONS ({options(braidlog_broker, topic)})")
    other = options(braidlog_broker, braidlog_broker.create_topic())
    for columns, said in (("*", "name the columns"), ("value", "without, CREATE TABLE name USING braidlog OPTIONS")):
        with pytest.raises(Exception, match=re.escape(said)):
            spark.sql(f"CREATE TABLE copy USING braidlog OPTIONS ({other}) AS SELECT {columns} FROM {table}")
    stream = spark.readStream.option("startingOffsets", "earliest").table(table).writeStream.trigger(availableNow=True)
    with pytest.raises(Exception, match=re.escape('write with format("braidlog") and its options')):
        stream.option("checkpointLocation", str(tmp_path)).toTable(table).awaitTermination()
    # Every row has an offset here already.
    with pytest.raises(Exception, match="name the columns"):
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table}")
    # One that names a cluster and a topic of its own goes there.
    target = braidlog_broker.create_topic()
    writer = spark.table(table).write.format("braidlog").mode("append").option("topic", target)
    writer.option("kafka.bootstrap.servers", braidlog_broker.bootstrap_servers).save()
    assert values(spark, table) == ["0", "1", "2"]


def test_what_a_table_cannot_have_is_one_sentence(spark: Any, braidlog_broker: Broker, topic: str, table: str) -> None:
    secret = options(braidlog_broker, topic, **{"kafka.sasl.password": "x"})
    with pytest.raises(Exception, match="password") as refused:
        spark.sql(f"CREATE TABLE {table} USING braidlog OPTIONS ({secret})")
    assert clear_error(refused.value).startswith("a table shows its options to everybody who may read it")
    spark.sql(f"CREATE TABLE {table} (value BINARY) USING braidlog OPTIONS ({options(braidlog_broker, topic)})")
    with pytest.raises(Exception, match="created with columns") as unread:
        spark.table(table).collect()
    assert clear_error(unread.value).startswith("Spark does not hand on the options of this table")
