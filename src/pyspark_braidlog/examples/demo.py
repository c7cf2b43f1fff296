"""What `make demo` shows: orders go from topic to topic through Spark while they are made, and each comes out once.

A broker is started, orders are sent to it, a streaming query prices them and writes them to another topic. Half-way the
query is stopped, as a crash or a deployment would, and started again from its checkpoint. At the end there are the
result, counted against what was sent, and the lag of the query's consumer group.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TextIO

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from braidlog import Admin, Producer, TopicPartition
from braidlog.client.admin import IsolationLevel, OffsetSpec
from braidlog.core.errors import UserError
from pyspark_braidlog.errors import clear_error
from pyspark_braidlog.examples.environment import ExampleEnvironment, run_example
from pyspark_braidlog.jobs.running import silence_python_tracebacks
from pyspark_braidlog.pipeline import decode_json, route

_WATCHED_EVERY_S: Final = 0.2
_QUIET_EVERY_S: Final = 5.0
ORDER: Final = "id BIGINT NOT NULL, sku STRING NOT NULL, quantity INT NOT NULL, cents BIGINT NOT NULL"
PRICED: Final = "id BIGINT, sku STRING, total_cents BIGINT"
EVENTS: Final = 20_000
ORDERS_PER_S: Final = 1500
PARTITIONS: Final = 4
_PRICES: Final = {"ink": 450, "lamp": 2990, "pen": 120, "desk": 18900, "chair": 7400}
_LOOK_S: Final = 0.25
# Far beyond what it takes on a slow machine: who waits that long waits for nothing.
_STUCK_S: Final = 300.0


class ProgressLine:
    """`show` often, `end` once: the last text stays."""

    def __init__(self, out: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._out = sys.stdout if out is None else out
        self._now = now
        self.is_watched = self._out.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
        # Without a terminal the first line is worth waiting for: it has something to report by then.
        self._next = 0.0 if self.is_watched else now() + _QUIET_EVERY_S
        self._text = ""
        self._width = 0

    def show(self, text: str) -> None:
        self._text = text
        if self._now() < self._next:
            return
        self._next = self._now() + (_WATCHED_EVERY_S if self.is_watched else _QUIET_EVERY_S)
        self._write()

    def end(self) -> None:
        if self._text:
            self._write()
        if self.is_watched and self._width:
            self._out.write("\n")
            self._out.flush()
        self._text, self._width = "", 0

    def _write(self) -> None:
        if self.is_watched:
            self._out.write("\r" + self._text.ljust(self._width))
            self._width = len(self._text)
        else:
            self._out.write(self._text + "\n")
        self._out.flush()


def priced(records: DataFrame, topic: str, dead_letters: str) -> DataFrame:
    """Records of orders in; records of priced orders out, and those that are no orders for the dead letters."""
    total_cents = F.col("value.quantity") * F.col("value.cents")
    order = F.to_json(F.struct("value.id", "value.sku", total_cents.alias("total_cents")))
    return route(decode_json(records, ORDER), topic, dead_letters, value=order)


class Shop(threading.Thread):
    """Sends orders at a steady pace, one in a thousand of them broken, and keeps the books."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        super().__init__(name="shop", daemon=True)
        self._servers = bootstrap
        self._topic = topic
        self._count = count
        self._closed = threading.Event()
        self.sent = 0
        self.broken = 0
        self.orders: Counter[str] = Counter()
        self.revenue_cents: Counter[str] = Counter()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            self._send()
        except BaseException as problem:
            self.problem = problem

    def _send(self) -> None:
        chance = random.Random(8)
        began = time.monotonic()
        with Producer(bootstrap_servers=self._servers, linger_ms=5) as producer:
            while self.sent < self._count and not self._closed.wait(0.02):
                due = min(self._count, int((time.monotonic() - began) * ORDERS_PER_S) + 1)
                for number in range(self.sent, due):
                    self._send_one(producer, number, chance)
                self.sent = due
            producer.flush(60)

    def _send_one(self, producer: Producer, number: int, chance: random.Random) -> None:
        sku, quantity = chance.choice(sorted(_PRICES)), chance.randint(1, 5)
        text = json.dumps({"id": number, "sku": sku, "quantity": quantity, "cents": _PRICES[sku]})
        if number % 1000 == 500:
            self.broken += 1
            text = text[:25]
        else:
            self.orders[sku] += 1
            self.revenue_cents[sku] += quantity * _PRICES[sku]
        producer.send(self._topic, text, f"customer-{chance.randrange(500)}")

    def close(self) -> None:
        self._closed.set()
        self.join(60)


class GroupLag(NamedTuple):
    """The committed offsets and the lag of a group on a topic, as every tool for groups shows them."""

    done: int
    lag: int


def group_lag(admin: Admin, group: str, topic: str) -> GroupLag:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST), isolation=IsolationLevel.READ_COMMITTED)
    committed = admin.list_group_offsets({group: places})[group]
    done = sum(committed[place].offset if place in committed else 0 for place in places)
    return GroupLag(done, sum(ends[place].offset for place in places) - done)


def run(env: ExampleEnvironment) -> None:
    began = time.monotonic()
    orders_topic = env.create_topic("orders", PARTITIONS)
    priced_topic = env.create_topic("priced", PARTITIONS)
    letters_topic = env.create_topic("dead-letters", 1)
    group = env.group("pricing")

    def start() -> StreamingQuery:
        incoming = (
            env.spark.readStream.format("braidlog")
            .option("kafka.bootstrap.servers", env.bootstrap)
            .option("subscribe", orders_topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(env.events // 4 + PARTITIONS))
            .option("groupId", group)
            .load()
        )
        return (
            priced(incoming, priced_topic, letters_topic)
            .writeStream.format("braidlog")
            .option("kafka.bootstrap.servers", env.bootstrap)
            .option("checkpointLocation", env.checkpoint("pricing"))
            .trigger(processingTime="500 milliseconds")
            .start()
        )

    shop = Shop(env.bootstrap, orders_topic, env.events)
    shop.start()
    try:
        env.say(f"{env.events:,} orders are on their way to {orders_topic}; Spark prices them to {priced_topic}")
        query = start()
        _watch(env, shop, query, group, orders_topic, until=env.events // 2)
        silence_python_tracebacks(env.spark)
        query.stop()
        env.say("The query was stopped in the middle. It goes on from its checkpoint:")
        query = start()
        _watch(env, shop, query, group, orders_topic, until=env.events)
        query.stop()
    finally:
        shop.close()
    _show_result(env, shop, priced_topic, letters_topic)
    env.say("Its progress is a consumer group's, for every tool that knows those:")
    env.show_lag(group)
    env.say(f"\nDone in {time.monotonic() - began:.0f} s, Spark's own start apart.")


def _watch(env: ExampleEnvironment, shop: Shop, query: StreamingQuery, group: str, topic: str, *, until: int) -> None:
    """Show how far the query is, until its group has come that far."""
    line = ProgressLine()
    last_done, last_change = -1, time.monotonic()
    with Admin(bootstrap_servers=env.bootstrap) as admin:
        while True:
            now = group_lag(admin, group, topic)
            batch = query.lastProgress
            pace = f"{batch.processedRowsPerSecond:,.0f} rows/s" if batch else "the first batch is being planned"
            line.show(f"{shop.sent:,} sent · {now.done:,} priced · lag {now.lag:,} · {pace}")
            if now.done >= until:
                break
            if now.done != last_done:
                last_done, last_change = now.done, time.monotonic()
            _check(shop, query, time.monotonic() - last_change)
            time.sleep(_LOOK_S)
    line.end()


def _check(shop: Shop, query: StreamingQuery, standstill_s: float) -> None:
    if shop.problem is not None:
        raise UserError(f"orders cannot be sent: {shop.problem}")
    if not query.isActive:
        problem = query.exception()
        raise UserError(f"the query has ended: {clear_error(problem) if problem is not None else 'it was stopped'}")
    if standstill_s > _STUCK_S:
        raise UserError(f"nothing was priced for {standstill_s:.0f} s, although the query is running: {query.status}")


def _show_result(env: ExampleEnvironment, shop: Shop, priced_topic: str, letters_topic: str) -> None:
    order = F.from_json("value", PRICED)
    result = (
        env.written(priced_topic, letters_topic)
        .withColumn("order", order)
        .groupBy(F.when(F.col("topic") == priced_topic, F.col("order.sku")).alias("sku"))
        .agg(
            F.count("*").alias("orders"),
            F.count_distinct("order.id").alias("different"),
            F.sum("order.total_cents").alias("revenue_cents"),
        )
        .orderBy("sku")
    )
    rows = result.collect()
    env.say(f"\n{'SKU':<10}{'ORDERS':>10}{'REVENUE':>16}")
    for row in rows:
        if row.sku is not None:
            env.say(f"{row.sku:<10}{row.orders:>10,}{row.revenue_cents / 100:>16,.2f}")
    broken = sum(row.orders for row in rows if row.sku is None)
    env.say(f"{broken} broken orders are in {letters_topic}")
    if not _is_all_there(shop, [row for row in rows if row.sku is not None], broken):
        sys.exit("The result is not what was sent: please report this.")
    env.say("Each order that was sent has come out once, none is missing.\n")


def _is_all_there(shop: Shop, rows: list[Row], broken: int) -> bool:
    return (
        {row.sku: row.orders for row in rows} == shop.orders
        and {row.sku: row.revenue_cents for row in rows} == shop.revenue_cents
        and all(row.orders == row.different for row in rows)
        and broken == shop.broken
    )


if __name__ == "__main__":
    run_example(run, __doc__, events=EVENTS)
    print("Everything is stopped again.")
