from __future__ import annotations

import io

import fastavro
import pytest

from braidlog.client.schema_registry.avro import NotOfItsSchema, parsed, read_avro, reason
from braidlog.core.errors import UserError

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}


def written(value: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, value)
    return out.getvalue()


def test_a_value_is_read_from_where_it_starts() -> None:
    assert read_avro(b"head" + written({"n": 5, "s": "x"}), 4, parsed(SCHEMA)) == {"n": 5, "s": "x"}


def test_bytes_that_follow_are_an_error() -> None:
    with pytest.raises(NotOfItsSchema, match="3 bytes follow it"):
        read_avro(written({"n": 5, "s": "x"}) + b"abc", 0, parsed(SCHEMA))


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x02\x7fshort"])
def test_other_bytes_are_not_of_the_schema(data: bytes) -> None:
    with pytest.raises(NotOfItsSchema):
        read_avro(data, 0, parsed(SCHEMA))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "enum", "name": "e", "symbols": ["a", "a"]},
        {"type": "no.such.Type"},
        {"type": "array"},
        {},
    ],
)
def test_a_schema_that_is_none_says_why(schema: object) -> None:
    with pytest.raises(UserError, match="the Avro schema is not valid"):
        parsed(schema)


def test_reasons_are_one_short_line() -> None:
    assert reason(ValueError("two\n  lines")) == "ValueError: two lines"
    assert reason(ValueError()) == "ValueError"
    assert len(reason(ValueError("x" * 1000))) == 300
