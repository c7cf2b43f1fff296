"""Transactions by librdkafka: how long one takes, from its beginning to the answer that it is committed."""

from __future__ import annotations

import statistics
import time

from bench.brokers import Broker, topic
from bench.measures import Better
from bench.session import Session

PARTITIONS = 4
RECORD = b"x" * 100
# The first ones find connections, and a just-in-time compiler, cold.
WARM_UP = 100


def measure(session: Session) -> None:
    count = session.plan.scaled(500, 200)
    for number, broker in session.interleaved("transactions"):
        with topic(broker, f"transactions-{number}", PARTITIONS) as name:
            taken = _transact(broker, name, WARM_UP + count)[WARM_UP:]
        for title, value in (("p50", statistics.median(taken)), ("p99", statistics.quantiles(taken, n=100)[98])):
            session.add(
                broker,
                "transactions",
                f"{PARTITIONS} records to {PARTITIONS} partitions, {title}",
                value * 1e3,
                "ms",
                Better.LOWER,
            )


def _transact(broker: Broker, name: str, count: int) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(60)
    taken: list[float] = []
    for _ in range(count):
        began = time.monotonic()
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(name, RECORD, partition=partition)
        producer.commit_transaction(60)
        taken.append(time.monotonic() - began)
    return taken
