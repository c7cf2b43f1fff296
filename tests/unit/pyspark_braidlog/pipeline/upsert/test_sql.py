"""Upserts in the words of each database."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.upsert.sql import DIALECTS, column, dialect_of, name, staging_table, upsert_statements


def statements(database: str, columns: list[str], keys: list[str]) -> list[str]:
    return upsert_statements(DIALECTS[database], "shop.stock", "staged", columns, keys, "gone")


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_on_conflict(database: str) -> None:
    assert statements(database, ["id", "n"], ["id"]) == [
        'INSERT INTO "shop"."stock" ("id", "n") SELECT "staged"."id", "staged"."n" FROM "staged" '
        'WHERE "staged"."gone" = 0 ON CONFLICT ("id") DO UPDATE SET "n" = excluded."n"',
        'DELETE FROM "shop"."stock" WHERE EXISTS (SELECT 1 FROM "staged" '
        'WHERE "shop"."stock"."id" = "staged"."id" AND "staged"."gone" = 1)',
    ]
    assert statements(database, ["id", "at"], ["id", "at"])[0].endswith('ON CONFLICT ("id", "at") DO NOTHING')


@pytest.mark.parametrize("database", ["mysql", "mariadb"])
def test_on_duplicate_key(database: str) -> None:
    assert statements(database, ["id", "n"], ["id"]) == [
        "INSERT INTO `shop`.`stock` (`id`, `n`) SELECT `staged`.`id`, `staged`.`n` FROM `staged` "
        "WHERE `staged`.`gone` = 0 ON DUPLICATE KEY UPDATE `n` = `staged`.`n`",
        "DELETE FROM `shop`.`stock` WHERE EXISTS (SELECT 1 FROM `staged` "
        "WHERE `shop`.`stock`.`id` = `staged`.`id` AND `staged`.`gone` = 1)",
    ]
    assert statements(database, ["id"], ["id"])[0].endswith("ON DUPLICATE KEY UPDATE `id` = `staged`.`id`")


def test_merge() -> None:
    assert statements("derby", ["id", "n"], ["id"]) == [
        'MERGE INTO "shop"."stock" t USING "staged" s ON t."id" = s."id" '
        'WHEN MATCHED AND s."gone" = 1 THEN DELETE WHEN MATCHED AND s."gone" = 0 THEN UPDATE SET "n" = s."n" '
        'WHEN NOT MATCHED AND s."gone" = 0 THEN INSERT ("id", "n") VALUES (s."id", s."n")'
    ]
    assert "UPDATE" not in statements("derby", ["id"], ["id"])[0]
    assert statements("sqlserver", ["id"], ["id"])[0].endswith(";")


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        ("postgresql", 'CREATE TABLE "staged" AS SELECT "id", 0 AS "gone" FROM "stock" WHERE 1 = 0'),
        ("mysql", "CREATE TABLE `staged` AS SELECT `id`, 0 AS `gone` FROM `stock` WHERE 1 = 0"),
        ("derby", 'CREATE TABLE "staged" AS SELECT "id", 0 AS "gone" FROM "stock" WITH NO DATA'),
        ("sqlserver", 'SELECT "id", 0 AS "gone" INTO "staged" FROM "stock" WHERE 1 = 0'),
    ],
)
def test_staging_tables(database: str, expected: str) -> None:
    assert staging_table(DIALECTS[database], "stock", "staged", ["id"], "gone") == expected


def test_names_are_quoted() -> None:
    assert name(DIALECTS["sqlite"], 'a"b.c') == '"a""b"."c"'
    assert column(DIALECTS["mysql"], "a.`b") == "`a.``b`"


def test_the_dialect_is_in_the_address() -> None:
    assert dialect_of("jdbc:postgresql://host/db").name == "postgresql"
    with pytest.raises(UserError, match="not known for jdbc:oracle; known are derby"):
        dialect_of("jdbc:oracle:thin:@host")
    with pytest.raises(UserError, match="begins with jdbc:"):
        dialect_of("postgresql://ann:s3cret@host")
