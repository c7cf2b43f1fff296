"""Upserts into a SQLite file on the driver's machine, exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import quoted
from pyspark_braidlog.pipeline.upsert.batch import DELETED, Sink, UpsertRules, row_without_key, several_rows
from pyspark_braidlog.pipeline.upsert.sql import MARKERS, SQLITE, column, marker_table, name, upsert_statements

_LOCK_TIMEOUT_S: Final = 30.0
_STAGING: Final = "braidlog_staging"
_INTEGERS: Final = frozenset(("byte", "short", "integer", "long", "boolean"))
_NESTED: Final = frozenset(("struct", "array", "map", "variant"))


def upsert_sqlite(
    path: str | Path,
    table: str,
    keys: str | Sequence[str],
    *,
    order_by: str | Sequence[str] | None = None,
    delete_where: Column | str | None = None,
    query: str | None = None,
) -> Sink:
    """A function for foreachBatch that inserts or replaces rows by `keys`; the table is made if there is none.

    A batch, the rows that it deletes (`delete_where`, a condition on the rows) and its number are one transaction.
    `order_by` says which of several rows of a key is the newest. Rows pass through the driver: bound a batch by
    maxOffsetsPerTrigger. Times are stored as ISO 8601 text in UTC, decimals as text, nested values as JSON.
    """
    rules = UpsertRules.checked(keys, order_by, delete_where, query)

    def upsert(batch: DataFrame, batch_id: int) -> None:
        source = rules.query_of(batch)
        with closing(_opened(path)) as connection:
            if _known(connection, path, source, table) >= batch_id:
                return
            changes = rules.changes(batch)
            rows = changes.select(
                *(_stored(quoted(each.name), each.dataType).alias(each.name) for each in changes.schema)
            )
            kinds = {each.name: _affinity(each.dataType) for each in changes.schema if each.name != DELETED}
            data = rows.toArrow()
            tuples = zip(*(chunk.to_pylist() for chunk in data.columns), strict=True)
            try:
                _apply(connection, table, kinds, rules.keys, tuples, source, batch_id)
            except sqlite3.IntegrityError as error:
                raise _explained(error, table, batch_id) from None
            except sqlite3.Error as error:
                raise UserError(f"SQLite refuses batch {batch_id} for {table} in {path}: {error}") from None

    return upsert


def _opened(path: str | Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
    except sqlite3.Error as error:
        raise UserError(f"cannot open the SQLite file {path}: {error}") from None


def _known(connection: sqlite3.Connection, path: str | Path, query: str, table: str) -> int:
    try:
        return _applied(connection, query, table)
    except sqlite3.Error as error:
        raise UserError(f"cannot read the SQLite file {path}: {error}") from None


def _applied(connection: sqlite3.Connection, query: str, table: str) -> int:
    """The last batch of the query that the table has; -1 for none."""
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (MARKERS,)).fetchone()
    if known is None:
        return -1
    found = connection.execute(f"SELECT batch FROM {MARKERS} WHERE query = ? AND target = ?", (query, table)).fetchone()
    return -1 if found is None else int(found[0])


def _apply(
    connection: sqlite3.Connection,
    table: str,
    kinds: dict[str, str],
    keys: Sequence[str],
    rows: Iterable[tuple[object, ...]],
    query: str,
    batch_id: int,
) -> None:
    columns = list(kinds)
    listed = ", ".join(
        f"{column(SQLITE, each)} {kind}" + (" NOT NULL" if each in keys else "") for each, kind in kinds.items()
    )
    primary = f"PRIMARY KEY ({', '.join(column(SQLITE, key) for key in keys)})"
    connection.execute(f"CREATE TEMP TABLE {_STAGING} ({listed}, {column(SQLITE, DELETED)} INTEGER, {primary})")
    places = ", ".join("?" * (len(columns) + 1))
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _applied(connection, query, table) >= batch_id:
            # While Spark computed the rows another driver of the query, run by mistake, got here or further.
            connection.execute("ROLLBACK")
            return
        connection.executemany(f"INSERT INTO {_STAGING} VALUES ({places})", rows)
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name(SQLITE, table)} ({listed}, {primary})")
        for statement in upsert_statements(SQLITE, table, _STAGING, columns, keys, DELETED):
            connection.execute(statement)
        connection.execute(marker_table(SQLITE).replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
        connection.execute(f"INSERT OR REPLACE INTO {MARKERS} VALUES (?, ?, ?)", (query, table, batch_id))
        connection.execute("COMMIT")
    except BaseException:
        # After a full disk, for one, SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _explained(error: sqlite3.IntegrityError, table: str, batch_id: int) -> UserError:
    text = str(error)
    if _STAGING in text and "UNIQUE" in text:
        return several_rows(table, batch_id)
    if _STAGING in text and "NOT NULL" in text:
        return row_without_key(table, batch_id)
    return UserError(f"SQLite refuses batch {batch_id} for {table}: {text}")


def _affinity(kind: DataType) -> str:
    word = kind.typeName()
    if word in _INTEGERS:
        # Not INTEGER: as a primary key that would make SQLite invent a number for a null.
        return "BIGINT"
    if word in ("float", "double"):
        return "REAL"
    return "BLOB" if word == "binary" else "TEXT"


def _stored(column: Column, kind: DataType) -> Column:
    """Converted by Spark, so that Python only hands the values over."""
    word = kind.typeName()
    if word == "boolean":
        return column.cast("int")
    if word == "timestamp":
        return F.date_format(F.to_utc_timestamp(column, F.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    if word == "timestamp_ntz":
        return F.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    if word in _NESTED:
        return F.to_json(column)
    return column if word in _INTEGERS or word in ("float", "double", "binary", "string") else column.cast("string")
