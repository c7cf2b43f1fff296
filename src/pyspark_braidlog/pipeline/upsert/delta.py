"""Upserts into a Delta table, where Delta is installed (the delta-spark that is made for this release of Spark)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.upsert.batch import DELETED, Sink, UpsertRules, check_keys

# Delta notes them in its log with the change itself, and skips a change that it has.
_APPLICATION: Final = "spark.databricks.delta.write.txnAppId"
_VERSION: Final = "spark.databricks.delta.write.txnVersion"


def upsert_delta(
    path: str,
    keys: str | Sequence[str],
    *,
    order_by: str | Sequence[str] | None = None,
    delete_where: Column | str | None = None,
    query: str | None = None,
) -> Sink:
    """A function for foreachBatch that merges rows by `keys` into the Delta table at `path`, made if there is none."""
    rules = UpsertRules.checked(keys, order_by, delete_where, query)

    def upsert(batch: DataFrame, batch_id: int) -> None:
        tables = _delta_tables()
        session = batch.sparkSession
        source = rules.query_of(batch)
        changes = rules.changes(batch).persist()
        session.conf.set(_APPLICATION, f"braidlog:{source}:{path}")
        session.conf.set(_VERSION, str(batch_id))
        try:
            # Delta refuses several rows of a key that it has, but inserts all of one that it has not.
            check_keys(changes, rules.keys, path, batch_id)
            if not tables.isDeltaTable(session, path):
                live = changes.where(F.col(DELETED) == 0).drop(DELETED)
                live.write.format("delta").save(path)
                return
            names = [each for each in changes.columns if each != DELETED]
            same = " AND ".join(f"t.{_name(key)} = s.{_name(key)}" for key in rules.keys)
            values = {_name(each): f"s.{_name(each)}" for each in names}
            (
                tables.forPath(session, path)
                .alias("t")
                .merge(changes.alias("s"), same)
                .whenMatchedDelete(condition=f"s.{DELETED} = 1")
                .whenMatchedUpdate(set=values)
                .whenNotMatchedInsert(condition=f"s.{DELETED} = 0", values=values)
                .execute()
            )
        finally:
            changes.unpersist()
            session.conf.unset(_APPLICATION)
            session.conf.unset(_VERSION)

    return upsert


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _delta_tables() -> Any:
    try:
        return importlib.import_module("delta.tables").DeltaTable
    except ImportError:
        raise UserError(
            "upsert_delta needs Delta: install the delta-spark that is made for this Spark, and start the session with "
            "its jar and extensions, as its documentation says"
        ) from None
