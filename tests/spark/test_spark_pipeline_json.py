"""JSON records decoded by Spark: what is good, what is malformed and why, and where both go."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline import dead_letters, decode_json, encode_json, route, split_malformed

RECORD = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
HEADERS = ", headers array<struct<key:string,value:binary>>"
NOON = datetime.datetime(2026, 5, 4, 12, 0, 0, 250_000)
SCHEMA = (
    "id int, name string, at timestamp, tags array<string>, price decimal(9,2), extra map<string,int>,"
    " place struct<city:string,zip:int>"
)

GOOD = {
    b'{"id":1,"name":"ann"}': {"id": 1, "name": "ann"},
    b' {"id":2}\n': {"id": 2},
    b"{}": {},
    b'{"id":null,"unknown":[1,{}]}': {},
    b'{"id":3,"name":7}': {"id": 3, "name": "7"},
    '{"id":4,"name":"Jürg ☃"}'.encode(): {"id": 4, "name": "Jürg ☃"},
    b'{"tags":["a",null],"extra":{"x":1},"place":{"zip":3}}': {
        "tags": ["a", None],
        "extra": {"x": 1},
        "place": {"city": None, "zip": 3},
    },
    b'{"id":5,"name":"]},[{"}': {"id": 5, "name": "]},[{"},
}
BAD = {
    b"": "value is not JSON",
    b"   ": "value is not JSON",
    b"nonsense": "value is not JSON",
    b'{"id":1': "value is not JSON",
    b"{'id':1}": "value is not JSON",
    b'{"id":1,"name":"\xff"}': "value is not UTF-8",
    b"\xff\xfe": "value is not UTF-8",
    b"null": "value is not a JSON object",
    b"17": "value is not a JSON object",
    b'[{"id":1}]': "value is not a JSON object",
    b'{"id":"one"}': "value does not fit the schema: id is not int",
    b'{"id":1.5}': "value does not fit the schema: id is not int",
    b'{"id":99999999999}': "value does not fit the schema: id is not int",
    b'{"id":"x","at":"yesterday"}': "value does not fit the schema: id is not int, at is not timestamp",
    b'{"extra":{"x":"y"}}': "value does not fit the schema: extra is not map<string,int>",
    b'{"price":"dear"}': "value does not fit the schema: price is not decimal(9,2)",
    b'{"place":{"zip":"N1"}}': "value does not fit the schema",
    b'{"id":1} {"id":2}': "value has more in it than one JSON object",
    b'{"id":1},{"id":2}': "value has more in it than one JSON object",
    b'{"id":1}]}': "value has more in it than one JSON object",
    b'{"id":1}, "end": false': "value has more in it than one JSON object",
    b'{"id":1} and more': "value has more in it than one JSON object",
}


def records(spark: SparkSession, values: list[bytes | None], headers: bool = False) -> DataFrame:
    own = ([("trace", b"t-1"), ("empty", None)],) if headers else ()
    rows = [(b"k%d" % n, value, "events", n % 3, 100 + n, NOON, *own) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD + (HEADERS if headers else ""))


def by_bytes(decoded: DataFrame) -> dict[bytes | None, Any]:
    return {None if row.raw_value is None else bytes(row.raw_value): row for row in decoded.collect()}


def test_every_good_text_is_decoded_and_no_malformed_one_is(spark: SparkSession) -> None:
    found = by_bytes(decode_json(records(spark, [*GOOD, *BAD, None]), SCHEMA))
    assert len(found) == len(GOOD) + len(BAD) + 1
    for text, expected in GOOD.items():
        assert found[text].error is None, text
        present = {name: value for name, value in found[text].value.asDict(True).items() if value is not None}
        assert present == expected, text
    for text, reason in BAD.items():
        assert found[text].error is not None, text
        assert found[text].error.startswith(reason), text
        assert found[text].value is None, text
    # No value is not a malformed value.
    assert (found[None].value, found[None].error) == (None, None)
    first = found[b'{"id":1,"name":"ann"}']
    assert (first.topic, first.partition, first.offset, first.timestamp) == ("events", 0, 100, NOON)
    assert bytes(first.key) == b"k0"


def test_a_comment_ends_with_the_text(spark: SparkSession) -> None:
    texts: list[bytes | None] = [b'{"id":1} // said Ann', b'{"id":2} /* open', b'{"id":3}']
    found = by_bytes(decode_json(records(spark, texts), "id int", options={"allowComments": "true"}))
    assert [row.value and row.value.id for row in map(found.get, texts) if row] == [1, None, 3]


def test_what_the_schema_requires_must_be_there(spark: SparkSession) -> None:
    schema = "id long NOT NULL, place struct<city:string NOT NULL,zip:int>"
    texts = [b'{"id":1}', b"{}", b'{"id":null}', b'{"id":1,"place":{}}', b'{"id":1,"place":{"city":"x"}}']
    found = by_bytes(decode_json(records(spark, [*texts]), schema))
    assert [found[text].error for text in texts] == [
        None,
        "value lacks id, which the schema requires",
        "value lacks id, which the schema requires",
        "value lacks place.city, which the schema requires",
        None,
    ]


def test_the_text_is_parsed_once(spark: SparkSession) -> None:
    good, _ = split_malformed(decode_json(records(spark, []), "id int"))
    plan = good.select("value.id")._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    assert plan.count("from_json(StructField(data") == 1, plan


def test_schemas_come_from_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events.json").write_text(
        '{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"at":{"type":"string","format":"date-time"}}}'
    )
    text = b'{"id":1,"at":"2026-05-04T12:00:00.250Z"}'
    found = decode_json(records(spark, [text]), str(tmp_path / "events.json"), flatten=True).collect()[0]
    assert (found.id, found.at, found.error) == (1, NOON, None)
    (tmp_path / "events.ddl").write_text("id long,\n at timestamp")
    assert decode_json(records(spark, [text]), tmp_path / "events.ddl").collect()[0].value.at == NOON
    (tmp_path / "spark.json").write_text(decode_json(records(spark, []), "id long").schema["value"].dataType.json())
    assert decode_json(records(spark, [text]), tmp_path / "spark.json").collect()[0].value.id == 1
    with pytest.raises(UserError, match=r"cannot read the schema file missing\.json"):
        decode_json(records(spark, []), "missing.json")
    with pytest.raises(UserError, match=r"neither the name of a \.json.* nor DDL"):
        decode_json(records(spark, []), "id, what is this?")


def test_flat_fields_may_not_hide_the_records_columns(spark: SparkSession) -> None:
    for name in ("offset", "Offset"):
        with pytest.raises(UserError, match=f"'{name}' would hide"):
            decode_json(records(spark, []), f"id int, {name} long", flatten=True)


def test_key_and_value_can_both_be_decoded(spark: SparkSession) -> None:
    rows = [(b'{"user":1}', b'{"id":1}', 0), (b"?", b'{"id":2}', 1), (b'{"user":3}', b"?", 2), (b"?", b"?", 3)]
    frame = spark.createDataFrame(rows, "key binary, value binary, offset long")
    both = decode_json(decode_json(frame, "user int", column="key"), "id int").orderBy("offset").collect()
    assert [row.error for row in both] == [None, "key is not JSON", "value is not JSON", "key is not JSON"]
    assert (both[0].key.user, both[0].value.id, bytes(both[2].raw_key)) == (1, 1, b'{"user":3}')


def test_dead_letters_say_what_and_where_from(spark: SparkSession) -> None:
    decoded = decode_json(records(spark, [b'{"id":1}', b"broken", None], headers=True), "id int")
    good, bad = split_malformed(decoded)
    assert good.columns == ["key", "topic", "partition", "offset", "timestamp", "headers", "value"]
    assert good.count() == 2
    letters = dead_letters(bad, topic="events.dead")
    assert letters.columns == ["key", "value", "headers", "topic"]
    (letter,) = letters.collect()
    assert (bytes(letter.key), bytes(letter.value), letter.topic) == (b"k1", b"broken", "events.dead")
    headers = [(header.key, None if header.value is None else bytes(header.value)) for header in letter.headers]
    assert headers == [
        ("trace", b"t-1"),
        ("empty", None),
        ("dead-letter.error", b"value is not JSON"),
        ("dead-letter.topic", b"events"),
        ("dead-letter.partition", b"1"),
        ("dead-letter.offset", b"101"),
        ("dead-letter.timestamp", b"2026-05-04T12:00:00.250Z"),
    ]
    with pytest.raises(UserError, match="no column 'offset'"):
        dead_letters(bad.drop("offset"), topic="events.dead")


def test_a_field_may_be_called_as_the_decoders_columns_are(spark: SparkSession) -> None:
    values = [b'{"id":1,"raw_score":7,"raw_key":"x"}', b"broken"]
    decoded = decode_json(records(spark, values), "id int, raw_score int, raw_key string", flatten=True)
    good, bad = split_malformed(decoded)
    (row,) = good.collect()
    assert (row.id, row.raw_score, row.raw_key) == (1, 7, "x")
    assert "raw_value" not in good.columns
    (letter,) = dead_letters(bad, topic="events.dead").collect()
    assert (bytes(letter.key), bytes(letter.value)) == (b"k1", b"broken")


def test_one_pass_sends_every_record_to_one_of_two_topics(spark: SparkSession) -> None:
    decoded = decode_json(records(spark, [b'{"id":1}', b"broken"]), "id int")
    sent = route(decoded, "clean", "events.dead", value=F.to_json(F.struct((F.col("value.id") + 1).alias("next"))))
    rows = {row.topic: row for row in sent.collect()}
    assert bytes(rows["clean"].value) == b'{"next":2}'
    assert rows["clean"].headers is None
    assert bytes(rows["events.dead"].value) == b"broken"
    assert rows["events.dead"].headers[0].key == "dead-letter.error"


def test_encoding_is_the_reverse(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"k", 1, "ann")], "key binary, id int, name string")
    encoded = encode_json(frame, fields=["id", "name"])
    assert encoded.columns == ["key", "value"]
    assert bytes(encoded.collect()[0].value) == b'{"id":1,"name":"ann"}'
    decoded = decode_json(encoded, "id int, name string")
    assert bytes(encode_json(decoded).collect()[0].value) == b'{"id":1,"name":"ann"}'
