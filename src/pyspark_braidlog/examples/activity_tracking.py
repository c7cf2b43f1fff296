"""Activity tracking: page views become visits, each visit ending when its user was away for half an hour.

Views arrive a little out of order. A watermark of ten minutes says how long the stream waits for stragglers; a visit
is written once, when no view can join it any more. Visits that are still open stay in the query's state.
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
from pyspark_braidlog.pipeline import decode_json, sessions, split_malformed

VIEW: Final = "user STRING, page STRING, at TIMESTAMP"
VISIT: Final = "user STRING, began TIMESTAMP, ended TIMESTAMP, views INT, landed_on STRING"
_MORNING: Final = datetime(2026, 3, 2, 8, tzinfo=UTC)
_PAGES: Final = ("/", "/search", "/cart", "/checkout", "/help", "/account")


def views(count: int, seed: int = 2) -> Iterator[Event]:
    """Page views of a morning: users come, look at some pages within minutes, and may come back later."""
    chance = random.Random(seed)
    drawn: list[tuple[datetime, str, str]] = []
    while len(drawn) < count:
        user = f"user-{chance.randrange(max(2, count // 8))}"
        moment = _MORNING + timedelta(milliseconds=chance.randrange(5 * 3_600_000))
        for _ in range(min(chance.randint(1, 8), count - len(drawn))):
            drawn.append((moment, user, chance.choice(_PAGES)))
            moment += timedelta(milliseconds=chance.randint(5_000, 600_000))
    # Sent when they happened, give or take two minutes: well within what the watermark waits for.
    drawn.sort(key=lambda view: (view[0] + timedelta(seconds=chance.randint(-120, 120)), view))
    for at, user, page in drawn:
        yield Event(user, json.dumps({"user": user, "page": page, "at": at.isoformat()}))


def visits(records: DataFrame) -> DataFrame:
    """Records of page views in; visits out, one row each, once they are over."""
    views, _ = split_malformed(decode_json(records, VIEW))
    return sessions(
        views.select("value.*"),
        on="at",
        gap="30 minutes",
        late="10 minutes",
        by="user",
        aggregates={"ended": "max(at)", "views": "count(*)", "landed_on": "min_by(page, at)"},
    ).select("user", F.col("session_start").alias("began"), "ended", "views", "landed_on")


def as_records(visits: DataFrame) -> DataFrame:
    return visits.select(F.col("user").alias("key"), F.to_json(F.struct("*")).alias("value"))


def run(env: ExampleEnvironment) -> None:
    views_topic = env.create_topic("views")
    visits_topic = env.create_topic("visits")
    group = env.group("sessions")
    env.send(views_topic, views(env.events))

    incoming = (
        env.spark.readStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", views_topic)
        .option("startingOffsets", "earliest")
        .option("groupId", group)
        .load()
    )
    query = (
        as_records(visits(incoming))
        .writeStream.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("topic", visits_topic)
        .option("checkpointLocation", env.checkpoint("visits"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    over = env.written(visits_topic).select(F.from_json("value", VISIT).alias("visit")).select("visit.*")
    env.show("The longest visits:", over.orderBy(F.desc("views"), "began"), rows=10)
    env.show_lag(group)


if __name__ == "__main__":
    run_example(run, __doc__)
