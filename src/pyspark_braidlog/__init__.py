"""braidlog and any Kafka-compatible cluster as a Spark data source: `spark.read.format("braidlog")`, with no jar.

Spark imports every installed package whose name begins with `pyspark_` and takes its `DefaultSource`; so this module
stays small, and what reading or writing needs is imported when it is asked for. Commands that only look at checkpoints
and groups never import PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_braidlog.data_source import DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        from pyspark_braidlog.data_source import DefaultSource

        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
