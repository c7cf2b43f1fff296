from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_braidlog.pipeline.arrow_decoding import decoded_structs


def read(data: bytes) -> tuple[Any, str | None]:
    return (None, "no number") if data == b"bad" else (int(data), None)


def test_each_value_has_itself_or_an_error_and_null_has_neither() -> None:
    found = decoded_structs(pa.array([b"1", b"bad", None], pa.binary()), read, pa.int64(), "value")
    assert found.to_pylist() == [
        {"value": 1, "error": None},
        {"value": None, "error": "no number"},
        {"value": None, "error": None},
    ]


def test_a_value_that_the_type_cannot_hold_does_not_spoil_the_others() -> None:
    found = decoded_structs(pa.array([b"1", b"300", b"2"], pa.binary()), read, pa.int8(), "value").to_pylist()
    assert [row["value"] for row in found] == [1, None, 2]
    assert found[1]["error"].startswith("value does not fit Spark's types")
