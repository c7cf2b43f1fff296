"""What Spark finds under the name "braidlog": readers and writers, batch and streaming.

Spark hands the options of `CREATE TABLE … USING braidlog OPTIONS (…)` to a Python data source once, when it asks for
the table's schema, and none of them when the table is read or written. What it does hand over each time is the schema.
So the options travel in the metadata of a column:

    CREATE TABLE       options {provider: braidlog, option.subscribe: orders, …}   schema() puts them into `offset`
    SELECT, INSERT     options {} and the schema, whose column `offset` has them

It is the column `offset` because an INSERT always has all columns of the table, and rows that are inserted have no
offset yet: rows with one come from another statement, such as a CREATE TABLE … AS SELECT from a table of this format,
whose schema would name the topic that is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructField, StructType

from pyspark_braidlog.worker_process import SentToWorkers, expect_hang_up

_OF_TABLE: Final = "option."
_CARRIER: Final = "offset"
_METADATA: Final = "braidlog.options"
_SERVERS: Final = "kafka.bootstrap.servers"
# Of secrets for clients other than ours.
_SECRET_WORDS: Final = ("password", "secret")

# The processes in which Spark looks for data sources and makes them import this, and unpickle no instance of it.
expect_hang_up()


class DefaultSource(SentToWorkers, DataSource):
    """Takes the options of Spark's own Kafka connector, and a few more; docs/spark/ has them all."""

    @classmethod
    def name(cls) -> str:
        return "braidlog"

    def schema(self) -> StructType:
        from pyspark_braidlog.source.options import ReadOptions
        from pyspark_braidlog.source.schema import record_schema

        options = _created_with(self.options)
        schema = record_schema(with_headers=ReadOptions.checked(options or self.options).include_headers)
        return _with_options(schema, options) if options else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_braidlog.source.batch import new_batch_reader

        return new_batch_reader(_merged(self.options, schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from braidlog.core.errors import UserError
        from pyspark_braidlog.source.stream import FailedStreamReader, new_stream_reader

        try:
            return new_stream_reader(_merged(self.options, schema), schema)
        except UserError as problem:
            return FailedStreamReader(problem.with_traceback(None))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from pyspark_braidlog.sink.writers import new_batch_writer

        is_insert = _SERVERS not in self.options
        return new_batch_writer(_merged(self.options, schema), schema, overwrite, is_insert=is_insert)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from braidlog.core.errors import UserError
        from pyspark_braidlog.sink.writers import new_stream_writer

        if _SERVERS not in self.options and any(_METADATA in field.metadata for field in schema.fields):
            # The metadata are those of a table that the stream reads: Spark does not tell which one it writes to.
            raise UserError(
                "Spark does not hand on the options of a table to a stream that is written to it: write with "
                'format("braidlog") and its options'
            )
        return new_stream_writer(self.options, schema, overwrite)


def _created_with(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table that is being created; none where Spark asks for anything else."""
    from braidlog.client.settings import ADMIN, CONSUMER, PRODUCER, definitions
    from braidlog.core.errors import UserError

    if "provider" not in options:
        return {}
    found = {name.removeprefix(_OF_TABLE): value for name, value in options.items() if name.startswith(_OF_TABLE)}
    known = definitions(PRODUCER) | definitions(CONSUMER) | definitions(ADMIN)
    for name in found:
        setting = known.get(name.removeprefix("kafka."))
        if setting.sensitive if setting is not None else any(word in name for word in _SECRET_WORDS):
            raise UserError(
                f"a table shows its options to everybody who may read it: leave {name} out and give it to each query, "
                f"SELECT … FROM table WITH (`{name}` = '…') or spark.read.option({name!r}, …).table(…), or create a "
                "temporary view instead"
            )
    return found


def _with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    kept = {_METADATA: json.dumps(dict(options))}
    return StructType(
        [
            StructField(each.name, each.dataType, each.nullable, kept if each.name == _CARRIER else each.metadata)
            for each in schema.fields
        ]
    )


def _merged(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """Options that name a cluster stand for themselves; others are added to those that the table was created with."""
    from braidlog.core.errors import UserError

    if _SERVERS in options:
        return options
    kept = next((each.metadata[_METADATA] for each in schema.fields if _METADATA in each.metadata), None)
    if kept is not None:
        return {**json.loads(kept), **{name.lower(): value for name, value in options.items()}}
    if not options:
        raise UserError(
            "Spark does not hand on the options of this table, which was created with columns or AS SELECT: create it "
            "without, CREATE TABLE name USING braidlog OPTIONS (…)"
        )
    return options
