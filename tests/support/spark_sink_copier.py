"""A Spark driver that copies one topic into another: `python -m support.spark_sink_copier <job as JSON>`.

It ends with 0 when everything that was there is copied. It runs on two threads, its tasks may fail often, and each row
takes a moment, so that a task has several Arrow batches and can be cut between them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from support.spark_sink_faults import PLAN, DyingSource

TESTS = Path(__file__).parent.parent


@dataclass(frozen=True)
class Job:
    bootstrap: str
    source: str
    sink: str
    checkpoint: str
    plan: str
    delivery: str
    rows_a_batch: int
    # "" is none; else the rows go through a shuffle into so many tasks.
    shuffle: str = ""

    def with_(self, **changes: object) -> Job:
        return replace(self, **changes)  # type: ignore[arg-type]


def life(job: Job, timeout_s: float = 300.0) -> tuple[int, str]:
    """One life of the driver: (how it ended, what it said last); nothing of it is left afterwards."""
    Path(job.plan).parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        PLAN: job.plan,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = Path(job.plan).parent / "driver.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.spark_sink_copier", json.dumps(asdict(job))],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return code, log.read_text(errors="replace")[-4000:]


def copy(job: Job) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2,50]")
        .appName("copier")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.log.level", "OFF")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.dataSource.register(DyingSource)
    rows = (
        spark.readStream.format("braidlog")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", job.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.rows_a_batch))
        .load()
        .select("key", "value")
    )
    if job.shuffle:
        rows = rows.repartition(int(job.shuffle), "value")
    # A pause that the optimizer does not see through.
    rows = rows.where("coalesce(java_method('java.lang.Thread', 'sleep', 1L), 'slept') IS NOT NULL")
    query = (
        rows.writeStream.format("braidlog_dying")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.sink)
        .option("delivery", job.delivery)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as problem:
        # In most lives the JVM is gone.
        print(f"failed: {problem}"[:3000], flush=True)
        os._exit(1)
    print("all is copied", flush=True)
    spark.stop()


if __name__ == "__main__":
    copy(Job(**json.loads(sys.argv[1])))
