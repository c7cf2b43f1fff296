"""`python -m tools.spark_classes`: keeps the classes that Spark loads, parsed and verified, for the tests' many Javas.

A Spark session loads some ten thousand classes out of two hundred jars, which is half of what its start costs. The
archive (class data sharing) is made once for an environment, by a session that does a little of everything; a Java or a
Spark that it does not fit goes on without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_braidlog.session import spark_environment

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# Where most programs are over before the better compiler pays.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
_EXIT_S = 300.0


def java_options() -> str:
    """For a Java that runs Spark, in SPARK_SUBMIT_OPTS or SPARK_DAEMON_JAVA_OPTS."""
    # Java would say on standard output that the archive does not fit.
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off" if ARCHIVE.exists() else QUICK_JAVA


def main() -> None:
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment("local[2]"))
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / ARCHIVE.name
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={made} -Xlog:cds*=off"
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", f"{place}/warehouse")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        _load_classes(spark, Path(place))
        spark.stop()
        # It ends by itself, and only then writes, when its standard input does.
        gateway.proc.stdin.close()
        gateway.proc.wait(_EXIT_S)
        if made.exists():
            # Another file system, perhaps; nobody is to see half of it.
            beside = ARCHIVE.with_suffix(".new")
            beside.write_bytes(made.read_bytes())
            beside.replace(ARCHIVE)
        else:
            print("Java has archived no classes: Spark's tests will take longer", file=sys.stderr)


def _load_classes(spark: SparkSession, place: Path) -> None:
    def unchanged(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        return batches

    def take(batch: DataFrame, _: int) -> None:
        batch.collect()

    rows = spark.range(100).selectExpr(
        "id", "id % 7 AS key", "CAST(id AS STRING) AS value", "current_timestamp() AS at"
    )
    rows.write.parquet(f"{place}/parquet")
    rows.write.json(f"{place}/json")
    spark.read.schema(rows.schema).json(f"{place}/json").createOrReplaceTempView("rows")
    spark.sql(
        "CREATE TABLE counted USING parquet AS SELECT key, count(*) AS n, max(at) AS latest FROM rows GROUP BY key"
    )
    spark.sql("SELECT * FROM rows JOIN counted USING (key) ORDER BY id").mapInArrow(
        unchanged, "key LONG, id LONG, value STRING, at TIMESTAMP, n LONG, latest TIMESTAMP"
    ).collect()
    spark.sql(
        "SELECT from_json('{\"a\": 1}', 'a INT').a, to_json(named_struct('b', 2)), hex(encode('x', 'utf-8'))"
    ).collect()
    stream = spark.readStream.schema(rows.schema).parquet(f"{place}/parquet")
    counts = stream.withWatermark("at", "1 minute").groupBy("key").count()
    for number, (table, mode) in enumerate([(stream, "append"), (counts, "complete")]):
        query = table.writeStream.outputMode(mode).option("checkpointLocation", f"{place}/checkpoint-{number}")
        query.foreachBatch(take).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
