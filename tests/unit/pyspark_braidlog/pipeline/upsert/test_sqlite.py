"""What a SQLite file has after batches came once, again, late, or not whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.upsert.sqlite import _applied, _apply, _known, _opened

KINDS = {"id": "BIGINT", "amount": "BIGINT"}


class File:
    def __init__(self, path: Path) -> None:
        self.path = path

    def apply(self, batch_id: int, *rows: tuple[Any, ...], kinds: dict[str, str] = KINDS, keys: str = "id") -> None:
        """As one driver does, over its own connection; a row's last member says whether it deletes."""
        self.apply_from(batch_id, rows, kinds, keys)

    def apply_from(
        self, batch_id: int, rows: Iterable[tuple[Any, ...]], kinds: dict[str, str] = KINDS, keys: str = "id"
    ) -> None:
        with closing(_opened(self.path)) as connection:
            _apply(connection, "stock", kinds, [keys], rows, "query", batch_id)

    def rows(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute("SELECT * FROM stock ORDER BY 1").fetchall()

    def batch(self) -> int:
        with closing(sqlite3.connect(self.path)) as connection:
            return _applied(connection, "query", "stock")


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "shop.db")


def test_rows_are_inserted_replaced_and_deleted(file: File) -> None:
    file.apply(0, (1, 5, 0), (2, 6, 0))
    file.apply(1, (1, 7, 0), (2, 0, 1), (3, 8, 0))
    assert (file.rows(), file.batch()) == ([(1, 7), (3, 8)], 1)


def test_a_driver_that_comes_late_changes_nothing(file: File) -> None:
    """It looked before the other driver wrote, and writes after it."""
    file.apply(4, (1, 4, 0))
    file.apply(5, (1, 5, 0))
    for batch_id in (5, 4):
        file.apply(batch_id, (1, 99, 0), (2, 99, 0))
    assert (file.rows(), file.batch()) == ([(1, 5)], 5)


def test_a_batch_that_breaks_off_leaves_no_trace(file: File) -> None:
    file.apply(0, (1, 5, 0))

    def broken() -> Iterable[tuple[Any, ...]]:
        yield (1, 6, 0)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        file.apply_from(1, broken())
    assert (file.rows(), file.batch()) == ([(1, 5)], 0)


def test_columns_may_be_called_anything(file: File) -> None:
    odd = {"a.b": "BIGINT", 'x"); DROP TABLE stock; --': "TEXT"}
    file.apply(0, (1, "one", 0), kinds=odd, keys="a.b")
    file.apply(1, (1, "two", 0), kinds=odd, keys="a.b")
    assert file.rows() == [(1, "two")]


def test_a_full_disk_is_told_and_leaves_no_trace(file: File) -> None:
    file.apply(0, (1, 5, 0))
    with closing(_opened(file.path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        many = ((number, number, 0) for number in range(1, 5000))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            _apply(connection, "stock", KINDS, ["id"], many, "query", 1)
    assert (file.rows(), file.batch()) == ([(1, 5)], 0)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, " * 100)
    with closing(_opened(tmp_path / "text")) as connection, pytest.raises(UserError, match="cannot read the"):
        _known(connection, tmp_path / "text", "query", "stock")
