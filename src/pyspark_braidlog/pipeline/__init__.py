"""Plain functions from DataFrame to DataFrame for what pipelines over topics need again and again."""

from braidlog.client.schema_registry.registry import Registry, RegistryError
from pyspark_braidlog.pipeline.avro.records import decode_avro, encode_avro
from pyspark_braidlog.pipeline.dead_letters import dead_letters, route
from pyspark_braidlog.pipeline.decoding import split_malformed
from pyspark_braidlog.pipeline.event_time import deduplicate, sessions, windowed
from pyspark_braidlog.pipeline.json_records import decode_json, encode_json
from pyspark_braidlog.pipeline.protobuf.records import decode_protobuf
from pyspark_braidlog.pipeline.schemas import spark_schema
from pyspark_braidlog.pipeline.tables import enrich, latest_by_key, refreshed
from pyspark_braidlog.pipeline.upsert.delta import upsert_delta
from pyspark_braidlog.pipeline.upsert.jdbc import upsert_jdbc
from pyspark_braidlog.pipeline.upsert.parquet import read_parquet_table, upsert_parquet
from pyspark_braidlog.pipeline.upsert.sqlite import upsert_sqlite
from pyspark_braidlog.sink.foreach_batch import topic_sink

__all__ = [
    "Registry",
    "RegistryError",
    "dead_letters",
    "decode_avro",
    "decode_json",
    "decode_protobuf",
    "deduplicate",
    "encode_avro",
    "encode_json",
    "enrich",
    "latest_by_key",
    "read_parquet_table",
    "refreshed",
    "route",
    "sessions",
    "spark_schema",
    "split_malformed",
    "topic_sink",
    "upsert_delta",
    "upsert_jdbc",
    "upsert_parquet",
    "upsert_sqlite",
    "windowed",
]
