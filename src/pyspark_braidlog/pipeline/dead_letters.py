"""Malformed records sent on to a topic of their own, with what is wrong and where they came from in headers.

    dead-letter.error        why it could not be decoded
    dead-letter.topic        where it was: topic,
    dead-letter.partition      partition,
    dead-letter.offset         offset,
    dead-letter.timestamp      and time, in ISO 8601 (UTC)

Headers are UTF-8 text, and follow the record's own. Key and value are the bytes as they came.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import ERROR, bytes_of

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_SOURCE: Final = ("topic", "partition", "offset", "timestamp")
PREFIX: Final = "dead-letter."


def dead_letters(malformed: DataFrame, topic: str) -> DataFrame:
    """The columns key, value, headers and topic that the sink takes, of records that have an `error`."""
    _check(malformed)
    return malformed.where(F.col(ERROR).isNotNull()).select(
        bytes_of(malformed, "key").alias("key"),
        bytes_of(malformed, "value").alias("value"),
        _headers(malformed).alias("headers"),
        F.lit(topic).alias("topic"),
    )


def route(
    decoded: DataFrame,
    topic: str | Column,
    dead_letter_topic: str,
    *,
    value: Column | None = None,
    key: Column | None = None,
) -> DataFrame:
    """Good and malformed records in one DataFrame for one sink, so that a stream is read and decoded once.

    Good records go to `topic`, with `key` and `value` (without them the bytes as they came) and their own headers;
    malformed ones to `dead_letter_topic`, as `dead_letters` makes them.
    """
    _check(decoded)
    good = F.col(ERROR).isNull()
    own = F.col("headers") if "headers" in decoded.columns else F.lit(None).cast(_HEADERS)
    raw_key, raw_value = bytes_of(decoded, "key"), bytes_of(decoded, "value")
    to = F.lit(topic) if isinstance(topic, str) else topic
    return decoded.select(
        F.when(good, raw_key if key is None else key.cast("binary")).otherwise(raw_key).alias("key"),
        F.when(good, raw_value if value is None else value.cast("binary")).otherwise(raw_value).alias("value"),
        F.when(good, own).otherwise(_headers(decoded)).alias("headers"),
        F.when(good, to).otherwise(F.lit(dead_letter_topic)).alias("topic"),
    )


def _check(decoded: DataFrame) -> None:
    missing = [name for name in (ERROR, *_SOURCE) if name not in decoded.columns]
    if missing:
        raise UserError(
            f"dead letters say where a record was and what is wrong with it, but there is no column {missing[0]!r}: "
            "give them what decode_json, decode_avro or decode_protobuf returned, with the record's own columns"
        )


def _headers(decoded: DataFrame) -> Column:
    utc = F.to_utc_timestamp(F.col("timestamp"), F.current_timezone())
    texts = {
        "error": F.col(ERROR),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.date_format(utc, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
    }
    made = F.array(
        *(
            F.struct(F.lit(PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in texts.items()
        )
    ).cast(_HEADERS)
    if "headers" not in decoded.columns:
        return made
    return F.concat(F.coalesce(F.col("headers"), F.array().cast(_HEADERS)), made)
