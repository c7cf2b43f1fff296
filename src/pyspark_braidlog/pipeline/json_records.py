"""Records whose bytes are JSON: decoded and encoded by Spark itself, with no Python in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from braidlog.client.schema_registry.registry import Registry
from braidlog.client.schema_registry.wire_format import HEADER_BYTES, header
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import check_bytes_column, decoded_columns, quoted
from pyspark_braidlog.pipeline.schemas import Schema, nullable, spark_schema

# Spark's reader takes the first JSON value of a text and ignores what follows it. So the text is put into a frame,
# {"data":[ text ],"end":true}: data with one element, and an end that was reached, are a text that was all read. The
# end is on a line of its own, lest a comment (allowComments) take it along.
_PARSED: Final = "__parsed_json"
_CORRUPT: Final = "__corrupt"
_ERROR: Final = "__json_error"
_REST: Final = 2**31 - 1
_NEEDED: Final[Mapping[str, str]] = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
# What JSON itself does not allow; options turn them on again.
_STRICT: Final[Mapping[str, str]] = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def decode_json(
    records: DataFrame,
    schema: Schema | None = None,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    column: str = "value",
    flatten: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Decode the JSON objects in `column`, and say in `error` why one cannot be.

    `schema` is a StructType, DDL, or the name of a file (see `schemas`). With a `registry` the text follows the id of
    its schema, and where no `schema` is given it is the latest JSON Schema of `subject`. Malformed is what is not
    UTF-8, not JSON, not one object, has a field that does not fit its type, or lacks a field that is not nullable.
    `flatten` puts the fields beside the record's columns instead of under `column`. `options` are those of Spark's
    JSON reader.
    """
    check_bytes_column(records, column, "decode_json")
    fields = _fields(schema, registry, subject)
    data = quoted(column).cast("binary")
    text = (data if registry is None else F.substring(data, HEADER_BYTES + 1, _REST)).cast("string")
    framed = F.concat(F.lit('{"data":['), text, F.lit('\n],"end":true}'))
    frame = StructType(
        [
            StructField("data", ArrayType(nullable(fields))),
            StructField("end", BooleanType()),
            StructField(_CORRUPT, StringType()),
        ]
    )
    chosen = {**_STRICT, **(options or {}), **_NEEDED}
    parsed = F.from_json(framed, frame, chosen)
    # A filter on `error` must not be pushed below the parsing, where Spark would parse once for the filter and again
    # for the columns: it does not push through a generator.
    once = records.select("*", F.explode(F.array(parsed)).alias(_PARSED))
    error = _error(fields, column, text, chosen)
    if registry is not None:
        begin = F.hex(F.substring(data, 1, HEADER_BYTES))
        unframed = (F.length(data) < HEADER_BYTES) | ~begin.startswith("00")
        error = F.when(unframed, F.concat(F.lit(f"{column} does not begin with a schema id: "), begin)).otherwise(error)
    with_error = once.withColumn(_ERROR, error)
    value = F.when(F.col(_ERROR).isNull(), _data())
    return decoded_columns(records, with_error, column, value, F.col(_ERROR), fields if flatten else None)


def encode_json(
    frame: DataFrame,
    *,
    column: str = "value",
    fields: Sequence[str] | None = None,
    schema_id: int | None = None,
) -> DataFrame:
    """Put JSON bytes into `column`: of that column itself, or of `fields` together, which are then dropped.

    With `schema_id`, as `Registry.register(subject, json_schema, "JSON")` returns it, the bytes begin with that id.
    """
    source = quoted(column) if fields is None else F.struct(*map(quoted, fields))
    made = F.to_json(source).cast("binary")
    if schema_id is not None:
        made = F.concat(F.lit(header(schema_id)), made)
    if fields is None:
        return frame.withColumn(column, made)
    kept = [name for name in frame.columns if name not in fields and name != column]
    return frame.select(*map(quoted, kept), made.alias(column))


def _fields(schema: Schema | None, registry: Registry | None, subject: str | None) -> StructType:
    if schema is not None:
        return spark_schema(schema)
    if registry is None or subject is None:
        raise UserError("decode_json needs schema= (a file, DDL or StructType), or registry= with subject=")
    found = registry.latest(subject)
    if found.kind != "JSON":
        raise UserError(f"the subject {subject} of the registry has {found.kind}, not JSON Schema")
    return spark_schema(found.schema)


def _data() -> Column:
    return F.get(F.col(f"{_PARSED}.data"), F.lit(0))


def _error(fields: StructType, column: str, text: Column, options: Mapping[str, str]) -> Column:
    """Null for good records and those without a value; the dearer questions are asked of bad ones only."""
    parsed = F.col(_PARSED)
    whole = (F.size(parsed["data"]) == 1) & parsed["end"].isNotNull()
    bad = parsed[_CORRUPT].isNotNull() | F.coalesce(~whole, F.lit(True)) | _data().isNull()
    error = (
        F.when(text.isNull(), F.lit(None).cast("string"))
        .when(~F.is_valid_utf8(text), F.lit(f"{column} is not UTF-8"))
        .when(bad, _fault(fields, column, text, options))
    )
    for path, present in _required(fields, _data(), ""):
        error = error.when(~present, F.lit(f"{column} lacks {path}, which the schema requires"))
    return error


def _fault(fields: StructType, column: str, text: Column, options: Mapping[str, str]) -> Column:
    """What is wrong with a text that did not fit."""
    variant = F.try_parse_json(text)
    is_object = F.coalesce(F.schema_of_variant(variant).startswith("OBJECT"), F.lit(False))
    partial = StructType([*nullable(fields).fields, StructField(_CORRUPT, StringType())])
    # Its first JSON value, as far as that fits; in a lambda, so that the plan has it once and not for every field.
    first = F.array(F.from_json(text, partial, dict(options)))
    misfit = F.get(F.transform(first, lambda found: _misfit(fields, column, text, found)), F.lit(0))
    return (
        F.when(variant.isNull(), F.lit(f"{column} is not JSON"))
        .when(~is_object, F.lit(f"{column} is not a JSON object"))
        .otherwise(misfit)
    )


def _misfit(fields: StructType, column: str, text: Column, found: Column) -> Column:
    """Names the fields that are present but could not be converted, where there are any."""
    misfits = [
        F.when(
            F.get_json_object(text, f"$['{field.name}']").isNotNull() & found.getField(field.name).isNull(),
            F.lit(f"{field.name} is not {field.dataType.simpleString()}"),
        )
        for field in fields.fields
        if not set(field.name) & set("'[]")
    ]
    named = F.concat_ws(", ", *misfits) if misfits else F.lit("")
    return (
        F.when(named != "", F.concat(F.lit(f"{column} does not fit the schema: "), named))
        .when(found.getField(_CORRUPT).isNull(), F.lit(f"{column} has more in it than one JSON object"))
        .otherwise(F.lit(f"{column} does not fit the schema"))
    )


def _required(fields: StructType, value: Column, prefix: str) -> Iterator[tuple[str, Column]]:
    """Fields that must be there, outside of arrays and maps; those inside a structure only where it is there."""
    for field in fields.fields:
        own = value.getField(field.name)
        if not field.nullable:
            yield prefix + field.name, own.isNotNull()
        if isinstance(field.dataType, StructType):
            for path, present in _required(field.dataType, own, f"{prefix}{field.name}."):
                yield path, own.isNull() | present
