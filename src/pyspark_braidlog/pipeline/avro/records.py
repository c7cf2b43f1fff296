"""Records whose bytes are Avro, with or without a schema registry; no jar, fastavro in Spark's Python workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from braidlog.client.schema_registry.registry import Registry
from braidlog.client.schema_registry.wire_format import header
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.avro.schema import avro_schema_of, expanded, spark_struct
from pyspark_braidlog.pipeline.decoding import check_bytes_column, decoded_columns, quoted
from pyspark_braidlog.pipeline.schemas import nullable, parsed_json, read_schema_file

AvroSchema = str | Path | Mapping[str, Any]
_DECODED: Final = "__decoded_avro"


def decode_avro(
    records: DataFrame,
    schema: AvroSchema | None = None,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    column: str = "value",
    flatten: bool = False,
) -> DataFrame:
    """Decode the Avro in `column`, and say in `error` why something cannot be.

    Without a registry the bytes are what `schema` (an .avsc file, its text, or the object) wrote. With one, they begin
    with the id of the schema that wrote them, and are read as `schema`, or as the latest one of `subject`, by Avro's
    rules of resolution: fields may have come, gone, or grown wider. The columns are settled now: a version that is
    registered while a stream runs is read as today's until the query is started anew.
    """
    check_bytes_column(records, column, "decode_avro")
    wanted = _reader_schema(schema, registry, subject)
    fields = spark_struct(expanded(wanted))
    from braidlog.client.schema_registry.avro import parsed
    from pyspark_braidlog.pipeline.avro.columns import AvroReadPlan, decoded_array

    parsed(wanted)
    plan = AvroReadPlan(json.dumps(wanted), registry, column)

    result = StructType([StructField("value", nullable(fields)), StructField("error", StringType())])
    # Not to be run once for a filter on `error` and again for the columns.
    decoding = _column_function(lambda values: decoded_array(plan, values), result).asNondeterministic()
    once = records.withColumn(_DECODED, decoding(quoted(column).cast("binary")))
    made = F.col(_DECODED)
    return decoded_columns(records, once, column, made["value"], made["error"], fields if flatten else None)


def encode_avro(
    frame: DataFrame,
    schema: AvroSchema | None = None,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    register: bool = False,
    column: str = "value",
    fields: Sequence[str] | None = None,
) -> DataFrame:
    """Put Avro bytes into `column`: of that column itself, or of `fields` together, which are then dropped.

    Without `schema` it is the subject's latest in the registry, or with `register` (and where there is no registry)
    one made from the columns' types. A schema is added to the registry only with `register`; else the subject must
    have it. A row that does not fit fails the query.
    """
    if register and registry is None:
        raise UserError("register=True needs the registry to register in")
    source = _source(frame, column, fields)
    kind = frame.select(source.alias("__row")).schema["__row"].dataType
    if schema is not None:
        wanted = avro_schema(schema)
    elif registry is not None and not register:
        wanted = _latest(registry, subject)
    elif isinstance(kind, StructType):
        wanted = avro_schema_of(kind, _record_name(subject or column))
    else:
        raise UserError(f"encode_avro needs a schema, or a structure in {column!r}, not {kind.simpleString()}")
    front = b"" if registry is None else header(_id(registry, subject, wanted, register))
    expanded_schema = expanded(wanted)
    if expanded_schema["type"] != "record":
        source = F.when(source.isNotNull(), F.struct(source.alias("value")))
    from braidlog.client.schema_registry.avro import parsed
    from pyspark_braidlog.pipeline.avro.columns import WritePlan, encoded_array

    parsed(wanted)
    plan = WritePlan(json.dumps(wanted), front, column)

    made = _column_function(lambda rows: encoded_array(plan, rows), BinaryType())(source)
    if fields is None:
        return frame.withColumn(column, made)
    kept = [name for name in frame.columns if name not in fields and name != column]
    return frame.select(*map(quoted, kept), made.alias(column))


def avro_schema(schema: AvroSchema) -> Any:
    """From a file's name, the text itself, or as it is."""
    if isinstance(schema, Mapping | list):
        return schema
    if isinstance(schema, Path) or not schema.lstrip().startswith(("{", "[", '"')):
        path = Path(schema)
        return parsed_json(read_schema_file(path), str(path))
    try:
        return json.loads(schema)
    except json.JSONDecodeError as error:
        raise UserError(f"the Avro schema is not JSON: {error}") from None


def _reader_schema(schema: AvroSchema | None, registry: Registry | None, subject: str | None) -> Any:
    if schema is not None:
        return avro_schema(schema)
    if registry is None:
        raise UserError("decode_avro needs schema= (a file, text or object), or registry= with subject=")
    return _latest(registry, subject)


def _latest(registry: Registry, subject: str | None) -> Any:
    if subject is None:
        raise UserError("which schema of the registry? give subject= (of a topic's values usually '<topic>-value')")
    found = registry.latest(subject)
    if found.kind != "AVRO":
        raise UserError(f"the subject {subject} of the registry has {found.kind}, not Avro")
    return found.schema


def _id(registry: Registry, subject: str | None, schema: object, register: bool) -> int:
    if subject is None:
        raise UserError("under which subject is the schema registered? give subject= (usually '<topic>-value')")
    return registry.register(subject, schema) if register else registry.id_of(subject, schema)


def _source(frame: DataFrame, column: str, fields: Sequence[str] | None) -> Column:
    for name in [column] if fields is None else fields:
        if name not in frame.columns:
            raise UserError(f"encode_avro: there is no column {name!r} among {', '.join(frame.columns)}")
    return quoted(column) if fields is None else F.struct(*map(quoted, fields))


def _column_function(function: Callable[[Any], Any], result: DataType) -> Any:
    # A function without annotations is taken for one of a column to a column, which is what these are.
    make: Any = arrow_udf
    return make(function, result)


def _record_name(text: str) -> str:
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in text)
    return name if not name[:1].isdigit() else f"_{name}"
