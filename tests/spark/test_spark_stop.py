"""A query that ends, or is stopped in the midst of its tasks, prints no tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.testing import Broker

PROGRAM = """
import sys, threading
from pyspark_braidlog.session import spark_session

servers, source, target, checkpoints = sys.argv[1:]
spark = spark_session("stopped", master="local[2]")
served = {"kafka.bootstrap.servers": servers}
records = (spark.readStream.format("braidlog").options(**served, subscribe=source, startingOffsets="earliest").load())

def writer(name, value):
    frame = records.selectExpr(f"CAST({value} AS STRING) AS value")
    writer = frame.writeStream.format("braidlog").options(**served, topic=target)
    return writer.option("checkpointLocation", f"{checkpoints}/{name}")

writer("ended", "value").trigger(availableNow=True).start().awaitTermination()
# Its tasks have begun to read and to write, and hang in Java.
query = writer("stopped", "reflect('java.lang.Thread', 'sleep', 120000L)").start()
tracker = spark.sparkContext.statusTracker()
while query.isActive and not any(tracker.getStageInfo(each).numActiveTasks for each in tracker.getActiveStageIds()):
    threading.Event().wait(0.05)
threading.Event().wait(5)
assert query.isActive, query.exception()
query.stop()
spark.stop()
print("stopped")
"""


@pytest.mark.timeout(300)
def test_the_end_of_a_query_prints_nothing(tmp_path: Path) -> None:
    with Broker(kind="process") as broker:
        source, target = broker.create_topic(partitions=2), broker.create_topic(partitions=2)
        producer = broker.producer()
        for number in range(100):
            producer.send(source, value=b"%d" % number, partition=number % 2)
        producer.flush()
        words = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, source, target, str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
