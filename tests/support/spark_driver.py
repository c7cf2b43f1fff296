"""A driver of its own for streams, to be killed: `python spark_driver.py PLAN.json`.

The plan is a list of streams: name, options, checkpoint, and the number of a batch to hold for ever, or null. Each
batch is told in a line of JSON on stdout: name, batch, values, and whether it is held.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Stream:
    name: str
    options: dict[str, str]
    checkpoint: str
    hold: int | None = None


@dataclass(frozen=True)
class Batch:
    name: str
    batch: int
    values: list[int]
    is_held: bool


class KillableDriver:
    """Runs streams in another process until it is killed, with all that it started."""

    def __init__(self, streams: list[Stream], plan: Path) -> None:
        plan.write_text(json.dumps([asdict(each) for each in streams]))
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(plan)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        )

    def __enter__(self) -> KillableDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """Nobody in there gets to say a last word."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def next_batch(self) -> Batch:
        """Waits for it; the test's own timeout bounds that."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"name"'):
                return Batch(**json.loads(line))
        raise AssertionError("the driver ended by itself")


def _run(streams: list[dict[str, Any]]) -> None:
    from pyspark.sql import DataFrame, SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )

    def start(stream: Stream) -> None:
        began = threading.Event()

        def take(rows: DataFrame, batch: int) -> None:
            began.set()
            values = sorted(int(row.value) for row in rows.select("value").collect())
            is_held = batch == stream.hold
            print(json.dumps(asdict(Batch(stream.name, batch, values, is_held))), flush=True)
            if is_held:
                threading.Event().wait()

        reader = spark.readStream.format("braidlog").options(**stream.options)
        reader.load().writeStream.foreachBatch(take).option("checkpointLocation", stream.checkpoint).start()
        # One after the other: Spark gives each of its Python workers ten seconds to start.
        began.wait()

    for each in streams:
        start(Stream(**each))
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    _run(json.loads(Path(sys.argv[1]).read_text()))
