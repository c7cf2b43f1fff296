"""What Spark finds under the name "braidlog": readers and writers, batch and streaming."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Takes the options of Spark's own Kafka connector, and a few more; docs/spark/ has them all."""

    @classmethod
    def name(cls) -> str:
        return "braidlog"

    def schema(self) -> StructType:
        from pyspark_braidlog.source.options import ReadOptions
        from pyspark_braidlog.source.schema import record_schema

        return record_schema(with_headers=ReadOptions.checked(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_braidlog.source.batch import new_batch_reader

        return new_batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from braidlog.core.errors import UserError
        from pyspark_braidlog.source.stream import RefusedStream, new_stream_reader

        try:
            return new_stream_reader(self.options, schema)
        except UserError as problem:
            return RefusedStream(problem.with_traceback(None))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from pyspark_braidlog.sink.batch import new_batch_writer

        return new_batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from pyspark_braidlog.sink.stream import new_stream_writer

        return new_stream_writer(self.options, schema, overwrite)
