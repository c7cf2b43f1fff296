from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.upsert.batch import DELETED, UpsertRules, row_without_key, several_rows


def batch_of(query: str | None, *columns: str) -> Any:
    """A batch as far as it is looked at before Spark has to do something."""
    context = SimpleNamespace(getLocalProperty=lambda name: query)
    return SimpleNamespace(columns=list(columns), sparkSession=SimpleNamespace(sparkContext=context))


def rules(keys: Any = "id", order_by: Any = None, query: str | None = None) -> UpsertRules:
    return UpsertRules.checked(keys, order_by, None, query)


def test_one_name_or_several() -> None:
    assert rules("id").keys == rules(["id"]).keys == ("id",)
    assert rules("id", "offset").order_by == ("offset",)
    assert rules("id", ["a", "b"]).order_by == ("a", "b")
    with pytest.raises(UserError, match="keys="):
        rules([])


def test_the_query_is_the_one_that_calls_unless_it_was_named() -> None:
    assert rules().query_of(batch_of("59f0")) == "59f0"
    assert rules(query="mine").query_of(batch_of("59f0")) == "mine"
    with pytest.raises(UserError, match="give query="):
        rules().query_of(batch_of(None))


@pytest.mark.parametrize(
    ("columns", "message"), [(["value"], "'id' that the rows do not have"), (["id", DELETED], "may not have a column")]
)
def test_rows_that_cannot_be_upserted(columns: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rules().changes(batch_of("q", *columns))


def test_errors_name_the_batch_and_what_to_do() -> None:
    assert "order_by='offset'" in str(several_rows("t", 7))
    assert "batch 7" in str(row_without_key("t", 7))
