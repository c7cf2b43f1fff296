"""Upserts into a database by JDBC, exactly once: tasks fill a staging table, one transaction merges it.

    1  the driver makes a staging table with the columns of the table, anew if there is one
       Spark's own JDBC writer puts the batch's changes into it, in parallel
    2  on the driver, in one transaction: has the table this batch? merge the staged rows, delete what is to be
       deleted, note the batch's number
    3  the staging table is dropped

A run that dies before the commit of step 2 leaves the table as it was, and the staging table to the next attempt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import quoted
from pyspark_braidlog.pipeline.upsert.batch import DELETED, Sink, UpsertRules, row_without_key, several_rows
from pyspark_braidlog.pipeline.upsert.sql import (
    MARKERS,
    Dialect,
    column,
    dialect_of,
    marker_table,
    name,
    staging_table,
    upsert_statements,
)

_NESTED: Final = frozenset(("struct", "array", "map", "variant"))


def upsert_jdbc(
    url: str,
    table: str,
    keys: str | Sequence[str],
    *,
    properties: Mapping[str, str] | None = None,
    order_by: str | Sequence[str] | None = None,
    delete_where: Column | str | None = None,
    query: str | None = None,
) -> Sink:
    """A function for foreachBatch that inserts or replaces rows of a database's table by `keys`.

    The table must exist, with a primary key or unique index over `keys`; its columns' types are the database's to
    know. `properties` are the JDBC driver's (user, password, driver: its class), and the driver's jar must be on
    Spark's class path (`spark.jars`). Nested values are written as JSON.
    """
    rules = UpsertRules.checked(keys, order_by, delete_where, query)
    dialect = dialect_of(url)
    given = dict(properties or {})

    def upsert(batch: DataFrame, batch_id: int) -> None:
        source = rules.query_of(batch)
        staging = _staging(table, source)
        with _connection(batch, url, given) as connection:
            if _applied(connection, dialect, source, table) >= batch_id:
                return
            changes = _written(rules.changes(batch))
            columns = [each for each in changes.columns if each != DELETED]
            _prepare(connection, dialect, table, staging, columns, rules.keys)
            # SQLite has one writer at a time.
            rows = changes.coalesce(1) if dialect.name == "sqlite" else changes
            rows.write.jdbc(url, name(dialect, staging), mode="append", properties=given)
            # First, and only upwards: the row's lock keeps out a second driver, run by mistake, or finds it ahead.
            _note(connection, dialect, source, table, batch_id)
            _check_keys(connection, dialect, staging, rules.keys, table, batch_id)
            for statement in upsert_statements(dialect, table, staging, columns, rules.keys, DELETED):
                _execute(connection, statement, f"batch {batch_id} for {table}")
            connection.commit()
            _execute(connection, f"DROP TABLE {name(dialect, staging)}", "dropping the staging table")
            connection.commit()

    return upsert


def _staging(table: str, query: str) -> str:
    digest = hashlib.sha256(query.encode()).hexdigest()[:8]
    return f"{table}_staging_{digest}"


def _written(changes: DataFrame) -> DataFrame:
    return changes.select(
        *(
            F.to_json(quoted(each.name)).alias(each.name) if each.dataType.typeName() in _NESTED else quoted(each.name)
            for each in changes.schema
        )
    )


@contextmanager
def _connection(batch: DataFrame, url: str, properties: Mapping[str, str]) -> Iterator[Any]:
    """The driver's own, by the JVM that Spark runs in; what was not committed is rolled back."""
    jvm = getattr(batch.sparkSession, "_jvm", None)
    if jvm is None:
        raise UserError(
            "upsert_jdbc works in the driver's JVM, which Spark Connect does not show; run it on the cluster"
        )
    arguments = jvm.java.util.Properties()
    for word, value in properties.items():
        arguments.setProperty(word, value)
    try:
        if "driver" in properties:
            jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(properties["driver"])
        connection = jvm.java.sql.DriverManager.getConnection(url, arguments)
    except Exception as error:
        # Addresses may have passwords in them, and Java repeats them.
        said = _said(error).replace(url, ":".join(url.split(":", 2)[:2]) + ":…")
        raise UserError(f"cannot connect to the database by JDBC: {said}") from None
    try:
        connection.setAutoCommit(False)
        yield connection
    finally:
        # What went wrong before is the news, not that a dead connection cannot be closed.
        with suppress(Exception):
            connection.rollback()
        with suppress(Exception):
            connection.close()


def _applied(connection: Any, dialect: Dialect, query: str, table: str) -> int:
    """The last batch of the query that the table has; -1 for none. Makes the table of these if there is none."""
    try:
        statement = connection.prepareStatement(
            f"SELECT {column(dialect, 'batch')} FROM {name(dialect, MARKERS)} "
            f"WHERE {column(dialect, 'query')} = ? AND {column(dialect, 'target')} = ?"
        )
        statement.setString(1, query)
        statement.setString(2, table)
        rows = statement.executeQuery()
        found = int(rows.getLong(1)) if rows.next() else -1
        statement.close()
        return found
    except Exception:
        connection.rollback()
    _execute(connection, marker_table(dialect), f"making the table {MARKERS}")
    connection.commit()
    return -1


def _note(connection: Any, dialect: Dialect, query: str, table: str, batch_id: int) -> None:
    query_, target, batch = (column(dialect, each) for each in ("query", "target", "batch"))
    markers = name(dialect, MARKERS)
    raised = connection.prepareStatement(
        f"UPDATE {markers} SET {batch} = ? WHERE {query_} = ? AND {target} = ? AND {batch} < ?"
    )
    added = connection.prepareStatement(f"INSERT INTO {markers} ({batch}, {query_}, {target}) VALUES (?, ?, ?)")
    for statement in (raised, added):
        statement.setLong(1, batch_id)
        statement.setString(2, query)
        statement.setString(3, table)
    raised.setLong(4, batch_id)
    try:
        if not raised.executeUpdate():
            added.executeUpdate()
    except Exception as error:
        raise UserError(
            f"cannot note batch {batch_id} for {table}, and nothing was written: {_said(error)}. Where the number is "
            "there already, a second driver runs on the same checkpoint: stop it"
        ) from None
    finally:
        raised.close()
        added.close()


def _prepare(
    connection: Any, dialect: Dialect, table: str, staging: str, columns: Sequence[str], keys: Sequence[str]
) -> None:
    """Committed, since tasks write to it over connections of their own."""
    lacking = _missing(connection, name(dialect, table), [column(dialect, key) for key in keys])
    if lacking is not None:
        listed = ", ".join(keys)
        raise UserError(f"the database has no table {table} with {listed}: create it, with its primary key ({lacking})")
    if _missing(connection, name(dialect, staging), ["1"]) is None:
        _execute(connection, f"DROP TABLE {name(dialect, staging)}", "dropping an old staging table")
    _execute(connection, staging_table(dialect, table, staging, columns, DELETED), f"a staging table like {table}")
    connection.commit()


def _missing(connection: Any, table: str, columns: Sequence[str]) -> str | None:
    """Why these columns of the table cannot be read; None if they can."""
    statement = connection.createStatement()
    try:
        statement.executeQuery(f"SELECT {', '.join(columns)} FROM {table} WHERE 1 = 0").close()
        return None
    except Exception as error:
        # Some databases go on with a transaction only after a rollback.
        connection.rollback()
        return _said(error)
    finally:
        statement.close()


def _check_keys(
    connection: Any, dialect: Dialect, staging: str, keys: Sequence[str], table: str, batch_id: int
) -> None:
    quoted_keys = [column(dialect, key) for key in keys]
    listed, source = ", ".join(quoted_keys), name(dialect, staging)
    absent = " OR ".join(f"{key} IS NULL" for key in quoted_keys)
    if _finds(connection, f"SELECT {listed} FROM {source} WHERE {absent}"):
        raise row_without_key(table, batch_id)
    if _finds(connection, f"SELECT {listed} FROM {source} GROUP BY {listed} HAVING COUNT(*) > 1"):
        raise several_rows(table, batch_id)


def _finds(connection: Any, text: str) -> bool:
    statement = connection.createStatement()
    try:
        return bool(statement.executeQuery(text).next())
    finally:
        statement.close()


def _execute(connection: Any, text: str, what: str) -> None:
    try:
        statement = connection.createStatement()
        statement.executeUpdate(text)
        statement.close()
    except Exception as error:
        raise UserError(f"the database refuses {what}: {_said(error)}") from None


def _said(error: Exception) -> str:
    """The database's own words, without the JVM's stack."""
    cause = getattr(error, "java_exception", None)
    text = cause.getMessage() if cause is not None else str(error)
    return (str(text).strip().splitlines() or ["no reason given"])[0]
