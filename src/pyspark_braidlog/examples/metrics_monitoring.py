"""Metrics monitoring: samples become figures for every minute, and alerts where a minute is bad.

One query writes both: each row of figures goes to the topic of figures, and, if it is bad, to that of alerts as well.
The sink's `topic` column tells them apart, and a transaction has both or none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_braidlog.examples.environment import Event, ExampleEnvironment, run_example
from pyspark_braidlog.pipeline import decode_json, split_malformed, windowed

SAMPLE: Final = "host STRING, latency_ms BIGINT, status INT, at TIMESTAMP"
FIGURES: Final = "host STRING, minute TIMESTAMP, requests BIGINT, mean_ms DOUBLE, slowest_ms BIGINT, failed BIGINT"
SLOW_MS: Final = 250
_NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
_HOSTS: Final = ("web-1", "web-2", "web-3")


def samples(count: int, seed: int = 3) -> Iterator[Event]:
    """Requests that three hosts served, about one a second; web-2 gets slow, and then fails, in the middle of it."""
    chance = random.Random(seed)
    moment = _NOON
    for number in range(count):
        moment += timedelta(milliseconds=chance.randint(0, 2000))
        host = chance.choice(_HOSTS)
        is_ill = host == "web-2" and count * 4 // 10 <= number < count * 6 // 10
        latency_ms = chance.randint(300, 900) if is_ill else chance.randint(20, 200)
        status = 503 if chance.random() < (0.4 if is_ill else 0.01) else 200
        sample = {"host": host, "latency_ms": latency_ms, "status": status, "at": moment.isoformat()}
        yield Event(host, json.dumps(sample))


def figures(records: DataFrame) -> DataFrame:
    """Records of samples in; one row out for every host and minute, once the minute is over."""
    samples, _ = split_malformed(decode_json(records, SAMPLE))
    return windowed(
        samples.select("value.*"),
        on="at",
        size="1 minute",
        late="30 seconds",
        by="host",
        aggregates={
            "requests": "count(*)",
            "mean_ms": "avg(latency_ms)",
            "slowest_ms": "max(latency_ms)",
            "failed": "count_if(status >= 500)",
        },
    ).select("host", F.col("window_start").alias("minute"), "requests", "mean_ms", "slowest_ms", "failed")


def figures_and_alerts(figures: DataFrame, figures_topic: str, alerts_topic: str) -> DataFrame:
    """Every row for the topic of figures, and those that are slow or fail often for the topic of alerts too."""
    is_bad = (F.col("mean_ms") > SLOW_MS) | (F.col("failed") * 10 > F.col("requests"))
    topics = F.when(is_bad, F.array(F.lit(figures_topic), F.lit(alerts_topic))).otherwise(F.array(F.lit(figures_topic)))
    return figures.select(
        F.col("host").alias("key"), F.to_json(F.struct("*")).alias("value"), F.explode(topics).alias("topic")
    )


def run(env: ExampleEnvironment) -> None:
    samples_topic = env.create_topic("samples")
    figures_topic = env.create_topic("figures")
    alerts_topic = env.create_topic("alerts", partitions=1)
    group = env.group("monitor")
    env.send(samples_topic, samples(env.events))

    incoming = (
        env.spark.readStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", samples_topic)
        .option("startingOffsets", "earliest")
        .option("groupId", group)
        .load()
    )
    query = (
        figures_and_alerts(figures(incoming), figures_topic, alerts_topic)
        .writeStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("checkpointLocation", env.checkpoint("figures"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    for title, topic in (("Figures:", figures_topic), ("Alerts:", alerts_topic)):
        rows = env.written(topic).select(F.from_json("value", FIGURES).alias("row")).select("row.*")
        env.show(title, rows.orderBy("minute", "host"), rows=12)
    env.show_lag(group)


if __name__ == "__main__":
    run_example(run, __doc__)
