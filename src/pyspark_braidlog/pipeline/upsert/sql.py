"""The SQL of upserts, in the words of each database: from a staging table into the table itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from braidlog.core.errors import UserError

MARKERS: Final = "braidlog_upserts"


class Dialect(NamedTuple):
    name: str
    quote: str
    # "conflict": INSERT … ON CONFLICT; "duplicate": INSERT … ON DUPLICATE KEY; "merge": the SQL standard's MERGE
    style: str
    text: str = "VARCHAR(255)"


SQLITE: Final = Dialect("sqlite", '"', "conflict", "TEXT")
DIALECTS: Final = {
    dialect.name: dialect
    for dialect in (
        SQLITE,
        Dialect("postgresql", '"', "conflict"),
        Dialect("mysql", "`", "duplicate"),
        Dialect("mariadb", "`", "duplicate"),
        Dialect("derby", '"', "merge"),
        Dialect("h2", '"', "merge"),
        Dialect("sqlserver", '"', "merge"),
    )
}


def dialect_of(url: str) -> Dialect:
    """The dialect, by the second word of a JDBC address: jdbc:postgresql://…"""
    parts = url.split(":", 2)
    if len(parts) < 3 or parts[0] != "jdbc":
        raise UserError("a JDBC address begins with jdbc:<database>:, for instance jdbc:postgresql://host/shop")
    found = DIALECTS.get(parts[1].lower())
    if found is None:
        raise UserError(f"upserts are not known for jdbc:{parts[1]}; known are {', '.join(sorted(DIALECTS))}")
    return found


def name(dialect: Dialect, *parts: str) -> str:
    """`schema.table` given as one word stays two names."""
    words = [word for part in parts for word in part.split(".")]
    return ".".join(dialect.quote + word.replace(dialect.quote, dialect.quote * 2) + dialect.quote for word in words)


def column(dialect: Dialect, word: str) -> str:
    return dialect.quote + word.replace(dialect.quote, dialect.quote * 2) + dialect.quote


def staging_table(dialect: Dialect, table: str, staging: str, columns: Sequence[str], deleted: str) -> str:
    """An empty table of the same columns, typed as the table's are, and one that says what is to be deleted."""
    chosen = ", ".join([*(column(dialect, each) for each in columns), f"0 AS {column(dialect, deleted)}"])
    target, made = name(dialect, table), name(dialect, staging)
    if dialect.name == "derby":
        return f"CREATE TABLE {made} AS SELECT {chosen} FROM {target} WITH NO DATA"
    if dialect.name == "sqlserver":
        return f"SELECT {chosen} INTO {made} FROM {target} WHERE 1 = 0"
    return f"CREATE TABLE {made} AS SELECT {chosen} FROM {target} WHERE 1 = 0"


def upsert_statements(
    dialect: Dialect, table: str, staging: str, columns: Sequence[str], keys: Sequence[str], deleted: str
) -> list[str]:
    """What brings the staged changes into the table; run in one transaction, in this order."""
    if dialect.style == "merge":
        return [_merge(dialect, table, staging, columns, keys, deleted)]
    target, source = name(dialect, table), name(dialect, staging)
    listed = ", ".join(column(dialect, each) for each in columns)
    staged = ", ".join(f"{source}.{column(dialect, each)}" for each in columns)
    insert = (
        f"INSERT INTO {target} ({listed}) SELECT {staged} FROM {source} "
        f"WHERE {source}.{column(dialect, deleted)} = 0 {_on_conflict(dialect, source, columns, keys)}"
    )
    delete = (
        f"DELETE FROM {target} WHERE EXISTS (SELECT 1 FROM {source} WHERE {_same(dialect, target, source, keys)} "
        f"AND {source}.{column(dialect, deleted)} = 1)"
    )
    return [insert, delete]


def _on_conflict(dialect: Dialect, source: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    rest = [each for each in columns if each not in keys]
    if dialect.style == "duplicate":
        # A key alone has nothing to update; setting it to itself leaves the row as it is.
        changed = rest or list(keys)[:1]
        sets = ", ".join(f"{column(dialect, each)} = {source}.{column(dialect, each)}" for each in changed)
        return f"ON DUPLICATE KEY UPDATE {sets}"
    listed = ", ".join(column(dialect, key) for key in keys)
    if not rest:
        return f"ON CONFLICT ({listed}) DO NOTHING"
    sets = ", ".join(f"{column(dialect, each)} = excluded.{column(dialect, each)}" for each in rest)
    return f"ON CONFLICT ({listed}) DO UPDATE SET {sets}"


def _merge(
    dialect: Dialect, table: str, staging: str, columns: Sequence[str], keys: Sequence[str], deleted: str
) -> str:
    rest = [each for each in columns if each not in keys]
    listed = ", ".join(column(dialect, each) for each in columns)
    staged = ", ".join(f"s.{column(dialect, each)}" for each in columns)
    flag = f"s.{column(dialect, deleted)}"
    update = ""
    if rest:
        sets = ", ".join(f"{column(dialect, each)} = s.{column(dialect, each)}" for each in rest)
        update = f"WHEN MATCHED AND {flag} = 0 THEN UPDATE SET {sets} "
    end = ";" if dialect.name == "sqlserver" else ""
    return (
        f"MERGE INTO {name(dialect, table)} t USING {name(dialect, staging)} s ON {_same(dialect, 't', 's', keys)} "
        f"WHEN MATCHED AND {flag} = 1 THEN DELETE {update}"
        f"WHEN NOT MATCHED AND {flag} = 0 THEN INSERT ({listed}) VALUES ({staged}){end}"
    )


def _same(dialect: Dialect, left: str, right: str, keys: Sequence[str]) -> str:
    return " AND ".join(f"{left}.{column(dialect, key)} = {right}.{column(dialect, key)}" for key in keys)


def marker_table(dialect: Dialect) -> str:
    """Where a sink notes the last batch of each query that its table has; IF NOT EXISTS is for the caller."""
    key_text, number = dialect.text, "BIGINT"
    columns = (
        f"{column(dialect, 'query')} {key_text} NOT NULL, {column(dialect, 'target')} {key_text} NOT NULL, "
        f"{column(dialect, 'batch')} {number} NOT NULL"
    )
    primary = f"PRIMARY KEY ({column(dialect, 'query')}, {column(dialect, 'target')})"
    return f"CREATE TABLE {name(dialect, MARKERS)} ({columns}, {primary})"
