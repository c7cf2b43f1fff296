"""Small streams into a topic, run again as after a crash: files of text in, a checkpoint whose end can be forgotten."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from braidlog.client.arrow.reading import RangeReader
from braidlog.testing import Broker
from pyspark_braidlog.pipeline import topic_sink


class Records:
    """What is in a topic, committed."""

    def __init__(self, broker: Broker, topic: str, partitions: int) -> None:
        self._broker = broker
        self._topic = topic
        self._partitions = partitions

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        places = [(self._topic, each) for each in range(self._partitions)]
        ends = self._broker.admin().list_offsets(dict.fromkeys(places, -1))
        with RangeReader(bootstrap_servers=self._broker.bootstrap_servers, isolation_level="read_committed") as reader:
            for partition in range(self._partitions):
                end = ends[self._topic, partition].offset
                for batch in reader.read(self._topic, partition, 0, end, columns=list(columns)):
                    found += batch.to_pylist()
        return found

    def values(self) -> Counter[str]:
        return Counter(each["value"].decode() for each in self.rows("value"))


class FileStream:
    """A query from a directory of text files to a topic; each run ends when all files are read."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, place: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._topic = topic
        self._files = place / "files"
        self.checkpoint = place / "checkpoint"
        self._files.mkdir(parents=True)
        self._count = 0

    def add(self, *lines: str) -> None:
        hidden = self._files / f".{self._count}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self._files / f"{self._count:03}.txt")
        self._count += 1

    def run(
        self,
        change: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        tasks: int = 2,
        output_mode: str = "append",
        for_each_batch: bool = False,
        **options: str,
    ) -> None:
        rows = change(self._spark.readStream.text(str(self._files))).repartition(tasks, "value")
        options = {"kafka.bootstrap.servers": self._broker.bootstrap_servers, "topic": self._topic, **options}
        writer = rows.writeStream.outputMode(output_mode).option("checkpointLocation", str(self.checkpoint))
        if for_each_batch:
            writer = writer.foreachBatch(topic_sink(options))
        else:
            writer = writer.format("braidlog").options(**options)
        writer.trigger(availableNow=True).start().awaitTermination()

    def forget_last_commit(self) -> None:
        """As if the driver had been killed before it wrote to its commit log."""
        commits = self.checkpoint / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def saved(self, place: Path) -> Path:
        shutil.copytree(self.checkpoint, place)
        return place

    def restore(self, place: Path) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(place, self.checkpoint)

    def groups(self) -> list[str]:
        """Those that hold the markers of this query."""
        query = (self.checkpoint / "metadata").read_text().split('"')[3]
        return [each.group_id for each in self._broker.admin().list_groups() if query in each.group_id]
