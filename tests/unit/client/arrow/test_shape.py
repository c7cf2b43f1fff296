from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from braidlog.client.arrow.shape import COLUMNS, USUAL, TableShape
from braidlog.core.errors import UserError


def test_the_usual_columns_have_the_types_of_sparks_source() -> None:
    shape = TableShape(timestamp_unit="us")
    assert tuple(shape.schema.names) == USUAL == COLUMNS[:-1]
    assert shape.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert shape.schema.field("key").type == pa.binary()
    assert [field.name for field in shape.schema if field.nullable] == ["key", "value"]


def test_only_what_is_needed_is_parsed() -> None:
    columns = TableShape(["offset", "value"], bytes_layout="binary_view").new_columns()
    assert (columns.wants_offsets, columns.wants_values) == (True, True)
    assert (columns.wants_keys, columns.wants_headers) == (False, False)
    assert TableShape(["offset"]).schema.names == ["offset"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": []}, "a list of names out of key, value"),
        ({"columns": ["kye"]}, "there is no column 'kye'"),
        ({"columns": ["key", "key"]}, "asked for twice"),
        ({"timestamp_unit": "ns"}, "'ms' or 'us'"),
        ({"bytes_layout": "string"}, "bytes_layout is one of binary"),
    ],
)
def test_what_a_table_cannot_have(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TableShape(**options)
