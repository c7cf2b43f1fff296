"""Records whose bytes are Protobuf, with or without a schema registry; no jar, no protoc, in Spark's Python workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType, StructField, StructType

from braidlog.client.schema_registry.registry import ProtobufSchema, Registry
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import check_bytes_column, decoded_columns, quoted
from pyspark_braidlog.pipeline.schemas import nullable, read_schema_file

_DECODED: Final = "__decoded_protobuf"


def decode_protobuf(
    records: DataFrame,
    schema: str | Path | None = None,
    message: str | None = None,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    column: str = "value",
    flatten: bool = False,
) -> DataFrame:
    """Decode the Protobuf messages in `column`, and say in `error` why something cannot be.

    `schema` is a .proto file (its imports lie beside it, or beside a directory above it), the text of one, or a
    descriptor set that `protoc --include_imports --descriptor_set_out` wrote. `message` is the one that is meant, with
    or without its package; the file's first unless given. With a `registry` the bytes begin with a schema's id and the
    indexes of a message in it; the columns are those of `schema`, or of the latest one of `subject`, settled now, and
    a record of another message is malformed.
    """
    check_bytes_column(records, column, "decode_protobuf")
    if schema is None and (registry is None or subject is None):
        raise UserError("decode_protobuf needs schema= (a .proto or descriptor file), or registry= with subject=")
    try:
        from braidlog.client.schema_registry.protobuf import UnusableProtobuf
        from pyspark_braidlog.pipeline.protobuf.columns import ProtobufReadPlan, decoded_array, messages
        from pyspark_braidlog.pipeline.protobuf.schema import spark_struct
    except ImportError as missing:
        raise UserError(f"decode_protobuf needs protobuf ({missing}): pip install 'braidlog[spark]'") from None
    try:
        source = _latest(registry, subject) if schema is None else _given(schema)
        found = messages(source)
        descriptor = (found.at((0,)) if message is None else found.named(message)).DESCRIPTOR
    except UnusableProtobuf as problem:
        raise UserError(f"the Protobuf schema {problem}") from None
    fields = spark_struct(descriptor)
    plan = ProtobufReadPlan(source, str(descriptor.full_name), registry, column)

    result = StructType([StructField("value", nullable(fields)), StructField("error", StringType())])
    # A function without annotations is taken for one of a column to a column, which is what this is.
    make: Any = arrow_udf
    # Not to be run once for a filter on `error` and again for the columns.
    decoding = make(lambda values: decoded_array(plan, values), result).asNondeterministic()
    once = records.withColumn(_DECODED, decoding(quoted(column).cast("binary")))
    made = F.col(_DECODED)
    return decoded_columns(records, once, column, made["value"], made["error"], fields if flatten else None)


def _latest(registry: Registry | None, subject: str | None) -> ProtobufSchema:
    assert registry is not None
    assert subject is not None
    found = registry.latest(subject)
    if found.kind != "PROTOBUF":
        raise UserError(f"the subject {subject} of the registry has {found.kind}, not Protobuf")
    schema: ProtobufSchema = found.schema
    return schema


def _given(schema: str | Path) -> ProtobufSchema | bytes:
    if isinstance(schema, str) and any(sign in schema for sign in "{;\n"):
        return ProtobufSchema(schema)
    path = Path(schema)
    if path.suffix != ".proto":
        try:
            return path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read the descriptor file {path}: {error.strerror or error}") from None
    text = read_schema_file(path)
    return ProtobufSchema(text, _imports(text, path, {}))


def _imports(text: str, path: Path, found: dict[str, str]) -> dict[str, str]:
    """The files that a file imports, and they in turn, by name, from the file's directory or one above."""
    from braidlog.client.schema_registry.protobuf import imports_of

    for name in imports_of(text):
        if name not in found:
            place = next((each / name for each in path.resolve().parents if (each / name).is_file()), None)
            if place is not None:
                found[name] = read_schema_file(place)
                _imports(found[name], place, found)
    return found
