"""braidlog and any Kafka-compatible cluster as a Spark data source: `spark.read.format("braidlog")`, with no jar.

Spark imports every installed package whose name begins with `pyspark_` and takes its `DefaultSource`; so this module
stays small, and what reading or writing needs is imported when it is asked for.
"""

from pyspark_braidlog.data_source import DefaultSource

__all__ = ["DefaultSource"]
