"""Messaging: a queue of requests that Spark works off, each reply going where its request asked for it.

Requests carry the headers `reply-to` (a topic) and `correlation-id`, as request and reply over Kafka usually do. The
stream prices the order in each request and writes the reply, or a refusal, exactly once: the sink's `topic` column
sends every row to its own topic. A request that names no topic for its reply ends among the dead letters.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_braidlog.examples.environment import Event, ExampleEnvironment, run_example
from pyspark_braidlog.pipeline import decode_json

REQUEST: Final = "order STRING NOT NULL, items ARRAY<STRUCT<sku: STRING, quantity: INT, cents: BIGINT>> NOT NULL"
_SKUS: Final = {"ink": 450, "lamp": 2990, "pen": 120, "desk": 18900, "chair": 7400}


def requests(count: int, reply_topics: Sequence[str], seed: int = 1) -> Iterator[Event]:
    """Orders to be priced; one in fifty cannot be read, and one in a hundred forgets to say where the reply goes."""
    chance = random.Random(seed)
    for number in range(count):
        items = [
            {"sku": sku, "quantity": chance.randint(1, 9), "cents": _SKUS[sku]}
            for sku in chance.sample(sorted(_SKUS), chance.randint(1, 3))
        ]
        text = json.dumps({"order": f"order-{number}", "items": items})
        headers = [("correlation-id", b"request-%d" % number)]
        if number % 100 != 99:
            headers.append(("reply-to", chance.choice(reply_topics).encode()))
        yield Event(f"order-{number}", text[:20] if number % 50 == 7 else text, tuple(headers))


def replies(requests: DataFrame, dead_letters: str) -> DataFrame:
    """Requests in, replies out: columns topic, key, value and headers, as the sink takes them."""
    total_cents = F.aggregate(
        "value.items", F.lit(0).cast("bigint"), lambda total, item: total + item["quantity"] * item["cents"]
    )
    priced = F.to_json(F.struct("value.order", total_cents.alias("total_cents")))
    refused = F.to_json(F.struct("error"))
    return decode_json(requests, REQUEST).select(
        F.coalesce(_header("reply-to").cast("string"), F.lit(dead_letters)).alias("topic"),
        "key",
        F.when(F.col("error").isNull(), priced).otherwise(refused).alias("value"),
        F.array(
            F.struct(F.lit("correlation-id").alias("key"), _header("correlation-id").alias("value")),
        ).alias("headers"),
    )


def _header(name: str) -> Column:
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]


def run(env: ExampleEnvironment) -> None:
    requests_topic = env.create_topic("requests", partitions=4)
    reply_topics = [env.create_topic(name) for name in ("replies-web", "replies-app")]
    dead_letters = env.create_topic("dead-letters", partitions=1)
    group = env.group("workers")
    env.send(requests_topic, requests(env.events, reply_topics))

    incoming = (
        env.spark.readStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", requests_topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("groupId", group)
        .load()
    )
    query = (
        replies(incoming, dead_letters)
        .writeStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("checkpointLocation", env.checkpoint("workers"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    written = env.written(*reply_topics, dead_letters)
    answers = written.groupBy("topic").agg(F.count("*").alias("replies"), F.min_by("value", "key").alias("one of them"))
    env.show("Who got how many replies:", answers.orderBy("topic"))
    env.say("The queue is worked off when there is no lag:")
    env.show_lag(group)


if __name__ == "__main__":
    run_example(run, __doc__)
