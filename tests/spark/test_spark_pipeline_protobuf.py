"""Protobuf records decoded in Spark, with schemas from files and from a registry; the bytes are Confluent's."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline import Registry, dead_letters, decode_protobuf, split_malformed
from support.registry_records import ORDER_PROTO, USER_PROTO, captured
from support.schema_registry import running_registry

CAPTURED = captured()
BY_NAME = {each.name: each.data for each in CAPTURED.records}
NOON = datetime.datetime(2026, 5, 4, 12, 0, 0, 250_000)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry(user="ann", password="s3cret") as running:
        running.contents.schemas.update(CAPTURED.schemas)
        running.contents.subjects.update(CAPTURED.subjects)
        yield Registry(running.url, user="ann", password="s3cret")


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(b"k", value, "orders", 0, offset, NOON) for offset, value in enumerate(values)]
    return spark.createDataFrame(
        rows, "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
    )


def test_records_of_a_registry(spark: SparkSession, registry: Registry) -> None:
    rows = records(spark, BY_NAME["protobuf shop.Order"], BY_NAME["protobuf shop.Header"], b"{}", None)
    decoded = decode_protobuf(rows, message="Order", registry=registry, subject="proto-shop.Order-value")
    assert decoded.columns == ["key", "topic", "partition", "offset", "timestamp", "value", "raw_value", "error"]
    good, bad = split_malformed(decoded)
    order, none = good.orderBy("offset").collect()
    assert none.value is None
    assert order.value.asDict(True) == {
        "id": 7,
        "by": {"id": 2**53 + 1, "name": "Ann Ångström"},
        "state": "PAID",
        "lines": [{"sku": "a", "cents": Decimal(2**64 - 1)}, {"sku": "b", "cents": Decimal(0)}],
        "counts": {"x": 1},
        "at": NOON,
        "note": "",
        "card": "visa",
        "cash": None,
        "raw": bytearray(b"\x00\xff"),
    }
    letters = dead_letters(bad, topic="dead").collect()
    assert sorted(bytes(letter.headers[0].value).decode() for letter in letters) == [
        "value does not begin with a schema id: 7b 7d",
        "value is a shop.Header, not a shop.Order",
    ]
    # The file's first message, where none is named.
    first = decode_protobuf(rows, registry=registry, subject="proto-shop.Order-value", flatten=True)
    assert [row.source for row in first.where("error is null and raw_value is not null").collect()] == ["web"]


def test_schemas_of_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "order.proto").write_text(ORDER_PROTO)
    (tmp_path / "user.proto").write_text(USER_PROTO)
    (tmp_path / "order.desc").write_bytes(CAPTURED.descriptor_set)
    rows = records(spark, BY_NAME["protobuf shop.Order"][7:], b"\xff")
    for schema in (str(tmp_path / "order.proto"), tmp_path / "order.desc"):
        good, bad = decode_protobuf(rows, schema, "shop.Order").orderBy("offset").collect()
        assert (good.value.id, good.value.state, good.value.at) == (7, "PAID", NOON)
        assert bad.error.startswith("value is not Protobuf of its schema")


def test_mistakes_are_told_at_once(spark: SparkSession, registry: Registry) -> None:
    rows = records(spark, b"")
    with pytest.raises(UserError, match="needs schema="):
        decode_protobuf(rows)
    with pytest.raises(UserError, match="has AVRO, not Protobuf"):
        decode_protobuf(rows, registry=registry, subject="avro-value")
    with pytest.raises(UserError, match=r"has no message 'Ordr'; it has shop\.Header, shop\.Order"):
        decode_protobuf(rows, message="Ordr", registry=registry, subject="proto-shop.Order-value")
    with pytest.raises(UserError, match=r"schema\.proto, line 1: a field's name expected"):
        decode_protobuf(rows, "message M { int32 }")
    with pytest.raises(UserError, match="contains itself"):
        decode_protobuf(rows, "message M { optional M m = 1; }")
    with pytest.raises(UserError, match="cannot read the descriptor file"):
        decode_protobuf(rows, "no-such-file.desc")
