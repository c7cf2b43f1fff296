"""Stream processing, topic to topic: orders are cleaned, enriched and added up to the revenue of each category.

Clean: what cannot be read goes to a topic of dead letters, with the reason; what was sent twice counts once. Enrich: a
compacted topic of products gives each order its category and price. Aggregate: revenue by category in windows of ten
minutes, each written once, when it is over.
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
from pyspark_braidlog.pipeline import (
    dead_letters,
    decode_json,
    deduplicate,
    enrich,
    latest_by_key,
    split_malformed,
    windowed,
)

ORDER: Final = "id STRING, sku STRING, quantity INT, at TIMESTAMP"
PRODUCT: Final = "sku STRING, category STRING, cents BIGINT"
REVENUE: Final = "category STRING, began TIMESTAMP, orders BIGINT, revenue_cents BIGINT"
_OPENING: Final = datetime(2026, 3, 2, 9, tzinfo=UTC)
_SKUS: Final = ("ink", "pen", "lamp", "desk", "chair", "rug", "globe")


def products() -> Iterator[Event]:
    """What there is to buy: the lamp's price has changed, the rug is not sold any more, a globe is unknown."""
    for sku, category, cents in (
        ("ink", "writing", 450),
        ("pen", "writing", 120),
        ("lamp", "light", 3290),
        ("desk", "furniture", 18900),
        ("chair", "furniture", 7400),
        ("rug", "furniture", 9900),
        ("lamp", "light", 2990),
    ):
        yield Event(sku, json.dumps({"sku": sku, "category": category, "cents": cents}))
    yield Event("rug", None)


def orders(count: int, seed: int = 6) -> Iterator[Event]:
    """Orders of a morning; some are cut off on the way, and some are sent again by a shop that got no answer."""
    chance = random.Random(seed)
    sent: list[Event] = []
    moment = _OPENING
    for number in range(count):
        moment += timedelta(milliseconds=chance.randint(500, 9_500))
        if sent and chance.random() < 0.05:
            yield chance.choice(sent[-5:])
            continue
        order = {"id": f"order-{number}", "sku": chance.choice(_SKUS), "quantity": chance.randint(1, 5)}
        text = json.dumps({**order, "at": moment.isoformat()})
        if number % 30 == 10:
            yield Event(str(order["id"]), text[: len(text) // 2])
            continue
        sent.append(Event(str(order["id"]), text))
        yield sent[-1]


def clean(records: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Records of orders in; each order once, and the records that are none."""
    good, malformed = split_malformed(decode_json(records, ORDER))
    return deduplicate(good.select("value.*"), "id", within="2 minutes", on="at"), malformed


def catalogue(records: DataFrame) -> DataFrame:
    """Records of the compacted topic in; the products as they are now."""
    return decode_json(latest_by_key(records), PRODUCT).select("value.*")


def revenue(orders: DataFrame, products: DataFrame) -> DataFrame:
    """Orders and products in; what each category brought in ten minutes out, once they are over."""
    priced = enrich(orders, products, on="sku").select(
        "at",
        F.coalesce("category", F.lit("unknown")).alias("category"),
        F.coalesce(F.col("quantity") * F.col("cents"), F.lit(0)).alias("cents"),
    )
    # Late orders were dealt with when duplicates were: the watermark is there already.
    return windowed(
        priced,
        on="at",
        size="10 minutes",
        late=None,
        by="category",
        aggregates={"orders": "count(*)", "revenue_cents": "sum(cents)"},
    ).select("category", F.col("window_start").alias("began"), "orders", "revenue_cents")


def run(env: ExampleEnvironment) -> None:
    orders_topic = env.create_topic("orders")
    products_topic = env.create_topic("products", config={"cleanup.policy": "compact"})
    revenue_topic = env.create_topic("revenue")
    letters_topic = env.create_topic("dead-letters", partitions=1)
    group, letters_group = env.group("revenue"), env.group("dead-letters")
    env.send(products_topic, products())
    env.send(orders_topic, orders(env.events))

    def orders_of(group: str) -> DataFrame:
        return (
            env.spark.readStream.format("braidlog")
            .option("kafka.bootstrap.servers", env.bootstrap)
            .option("subscribe", orders_topic)
            .option("startingOffsets", "earliest")
            .option("groupId", group)
            .load()
        )

    table = (
        env.spark.read.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", products_topic)
        .load()
    )
    # Two queries, each reading the topic for itself: that of the dead letters keeps no state, and never waits.
    good, _ = clean(orders_of(group))
    _, malformed = clean(orders_of(letters_group))
    sums = revenue(good, catalogue(table)).select(
        F.col("category").alias("key"), F.to_json(F.struct("*")).alias("value"), F.lit(revenue_topic).alias("topic")
    )
    for name, frame in (("revenue", sums), ("dead-letters", dead_letters(malformed, letters_topic))):
        query = (
            frame.writeStream.format("braidlog")
            .option("kafka.bootstrap.servers", env.bootstrap)
            .option("checkpointLocation", env.checkpoint(name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    sums = env.written(revenue_topic).select(F.from_json("value", REVENUE).alias("row")).select("row.*")
    env.show("Revenue by category in ten minutes:", sums.orderBy("began", "category"), rows=20)
    env.show("Records that could not be read:", env.written(letters_topic).drop("topic"), rows=3)
    env.show_lag(group)


if __name__ == "__main__":
    run_example(run, __doc__)
