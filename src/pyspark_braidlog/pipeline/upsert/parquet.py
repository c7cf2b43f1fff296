"""Upserts into a table of Parquet files: every batch writes the table anew and switches to it at once.

    <path>/
      current -> 7@<query>        a link, replaced by a rename; what it points at is the table
      6@<query>/                  the version before, for those who are reading it
      7@<query>/                  a version, by the batch that wrote it
        part-….parquet
        _applied.json             the last batch of each query that is in it

So a batch is in the table wholly or not at all, together with the note that it is. The price is that each batch
writes the whole table; for tables beyond some gigabytes take Delta.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import quoted
from pyspark_braidlog.pipeline.upsert.batch import DELETED, Sink, UpsertRules, check_keys

_CURRENT: Final = "current"
_APPLIED: Final = "_applied.json"


def upsert_parquet(
    path: str | Path,
    keys: str | Sequence[str],
    *,
    order_by: str | Sequence[str] | None = None,
    delete_where: Column | str | None = None,
    query: str | None = None,
    keep: int = 2,
) -> Sink:
    """A function for foreachBatch that inserts or replaces rows by `keys` in the table under `path`.

    `path` is on a file system that driver and executors share and that has links: a local disk, or a mounted one. One
    query at a time may write. `keep` versions are kept; read the table with `read_parquet_table`.
    """
    rules = UpsertRules.checked(keys, order_by, delete_where, query)
    root = _directory(path)

    def upsert(batch: DataFrame, batch_id: int) -> None:
        source = rules.query_of(batch)
        applied = _applied(root)
        if applied.get(source, -1) >= batch_id:
            return
        changes = rules.changes(batch).persist()
        try:
            check_keys(changes, rules.keys, str(root), batch_id)
            version = root / f"{batch_id}@{quote(source, safe='')}"
            table = changes.where(F.col(DELETED) == 0).drop(DELETED)
            current = _version(root)
            if current is not None:
                old = batch.sparkSession.read.parquet(str(current))
                rest = old.join(changes.select(*map(quoted, rules.keys)), list(rules.keys), "left_anti")
                table = rest.select(*map(quoted, old.columns)).unionByName(table, allowMissingColumns=True)
            table.write.mode("overwrite").parquet(str(version))
        finally:
            changes.unpersist()
        (version / _APPLIED).write_text(json.dumps({**applied, source: batch_id}))
        _switch(root, version)
        _forget(root, version, keep)

    return upsert


def read_parquet_table(spark: SparkSession, path: str | Path) -> DataFrame:
    """The table as it is now; it stays so while later batches are written, as long as its version is kept."""
    current = _version(_directory(path))
    if current is None:
        raise UserError(f"there is no table under {path} yet")
    return spark.read.parquet(str(current))


def _directory(path: str | Path) -> Path:
    text = str(path).removeprefix("file://")
    if "://" in text:
        raise UserError(
            f"upsert_parquet writes to a mounted file system, not to {path}; for object stores take upsert_delta"
        )
    return Path(text).absolute()


def _version(root: Path) -> Path | None:
    link = root / _CURRENT
    return root / os.readlink(link) if link.is_symlink() else None


def _applied(root: Path) -> dict[str, int]:
    current = _version(root)
    if current is None:
        return {}
    found: dict[str, int] = json.loads((current / _APPLIED).read_text())
    return found


def _switch(root: Path, version: Path) -> None:
    fresh = root / f".{_CURRENT}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(version.name)
    fresh.replace(root / _CURRENT)


def _forget(root: Path, newest: Path, keep: int) -> None:
    versions = [each for each in root.iterdir() if each.is_dir() and not each.is_symlink() and "@" in each.name]
    others = sorted((each for each in versions if each != newest), key=lambda each: each.stat().st_mtime_ns)
    for old in others[: max(len(versions) - max(keep, 1), 0)]:
        shutil.rmtree(old, ignore_errors=True)
