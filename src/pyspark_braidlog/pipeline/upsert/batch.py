"""What every upsert sink asks of a micro-batch before it writes: one row a key, and a name to recognise it by.

A sink is a function for `foreachBatch`. Spark calls it again with the same batch number when a run died before the
checkpoint had the batch as done; the sink finds the number beside its data, put there in the same transaction, and
does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import quoted

Sink = Callable[[DataFrame, int], None]
# 1 for rows whose key is to be deleted.
DELETED: Final = "braidlog_deleted"
_QUERY_PROPERTY: Final = "sql.streaming.queryId"


class UpsertRules(NamedTuple):
    """How rows become changes of a table; the same for all kinds of table."""

    keys: tuple[str, ...]
    order_by: tuple[str, ...]
    delete_where: Column | str | None
    query: str | None

    @classmethod
    def checked(
        cls,
        keys: str | Sequence[str],
        order_by: str | Sequence[str] | None,
        delete_where: Column | str | None,
        query: str | None,
    ) -> UpsertRules:
        names = (keys,) if isinstance(keys, str) else tuple(keys)
        if not names:
            raise UserError("an upsert needs the columns that make a row's key: keys=['id']")
        order = () if order_by is None else (order_by,) if isinstance(order_by, str) else tuple(order_by)
        return cls(names, order, delete_where, query)

    def query_of(self, batch: DataFrame) -> str:
        """The query's own id, which lives in its checkpoint: a new checkpoint is another query."""
        if self.query is not None:
            return self.query
        try:
            found = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_PROPERTY)
        except Exception:
            found = None
        if not found:
            raise UserError(
                "this upsert was not called by a streaming query (or over Spark Connect, which does not name it): "
                "give query='a name that stays the same', and another one with a new checkpoint"
            )
        return str(found)

    def changes(self, batch: DataFrame) -> DataFrame:
        """One row a key, the newest by `order_by`, and a column that says whether it deletes."""
        for name in (*self.keys, *self.order_by):
            if name not in batch.columns:
                raise UserError(
                    f"the upsert names a column {name!r} that the rows do not have: {', '.join(batch.columns)}"
                )
        if DELETED in batch.columns:
            raise UserError(f"rows for an upsert may not have a column {DELETED!r}; rename it")
        rows = batch
        if self.order_by:
            row = F.struct(*map(quoted, batch.columns))
            order = F.struct(*map(quoted, self.order_by))
            newest = batch.groupBy(*(quoted(key).alias(f"__{key}") for key in self.keys)).agg(
                F.max_by(row, order).alias("__row")
            )
            rows = newest.select("__row.*")
        condition = self.delete_where
        if condition is None:
            return rows.withColumn(DELETED, F.lit(0))
        deleted = F.expr(condition) if isinstance(condition, str) else condition
        return rows.withColumn(DELETED, F.coalesce(deleted.cast("int"), F.lit(0)))


def several_rows(table: str, batch_id: int) -> UserError:
    return UserError(
        f"batch {batch_id} has several rows of one key for {table}, and nothing says which is the newest: "
        "give order_by='offset' or another column that grows"
    )


def row_without_key(table: str, batch_id: int) -> UserError:
    return UserError(f"batch {batch_id} has rows for {table} without a key; drop such rows before")


def check_keys(changes: DataFrame, keys: Sequence[str], table: str, batch_id: int) -> None:
    """Checks that every key of the batch occurs once and is not null: a null key would never be found again."""
    key = F.struct(*map(quoted, keys))
    lacking = F.greatest(*(quoted(each).isNull() for each in keys), F.lit(False))
    rows, distinct, nulls = changes.agg(F.count("*"), F.count_distinct(key), F.count_if(lacking)).collect()[0]
    if nulls:
        raise row_without_key(table, batch_id)
    if rows != distinct:
        raise several_rows(table, batch_id)
