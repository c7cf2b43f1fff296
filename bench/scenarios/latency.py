"""How long one record takes at a modest rate, to its acknowledgement and to a consumer; also beside a cold reader."""

from __future__ import annotations

import time

from bench import programs
from bench.brokers import Broker, topic
from bench.machine import evict_from_page_cache
from bench.measures import Better
from bench.requests import Requester
from bench.session import LARGE_PARTITIONS, Session

TARGET_P50, TARGET_P99 = 0.9, 0.7
RATE = 1000
SIZE = 1024
COLD_TOPIC = "cold"
COLD_RECORD = 10_240
COLD_ROUNDS = 3
WARM_SECONDS = 1.0


def _targets(percentile: str) -> float:
    return TARGET_P50 if percentile == "p50" else TARGET_P99


def measure(session: Session) -> None:
    seconds = session.plan.scaled(5, 2)
    for number, broker in session.interleaved("latency"):
        name = f"latency-{number}"
        with topic(broker, name, 1):
            result = programs.run(
                "load",
                "latency",
                brokers=f"127.0.0.1:{broker.port}",
                topic=name,
                size=SIZE,
                rate=RATE,
                seconds=seconds,
                warm_seconds=WARM_SECONDS,
            )
            raw = programs.run("tiny", "paced", port=broker.port, topic=name, size=SIZE, rate=RATE, seconds=seconds)
        _add(session, broker, "latency", result)
        for percentile in ("p50", "p99"):
            title = f"produce through a bare socket, {percentile}"
            value = raw[f"{percentile}_us"] / 1e3
            session.add(broker, "latency", title, value, "ms", Better.LOWER, _targets(percentile))


def _add(session: Session, broker: Broker, group: str, result: programs.Result) -> None:
    for key, what in (("produce", "produce to acknowledgement"), ("end_to_end", "produce to consumer")):
        for percentile in ("p50", "p99"):
            value = result[f"{key}_{percentile}_us"] / 1e3
            # What was asked for beside a cold reader is the p99; its p50 is shown without a target.
            target = None if (group, percentile) == ("cold", "p50") else _targets(percentile)
            session.add(broker, group, f"{what}, {percentile}", value, "ms", Better.LOWER, target)


def measure_cold(session: Session) -> None:
    """The cold data is read once, a slice per round, each slice evicted from the page cache before."""
    rounds = min(COLD_ROUNDS, session.plan.rounds)
    per_round = session.plan.cold_bytes // rounds // COLD_RECORD
    for broker in session.pair():
        session.progress.show(f"cold reader: writing {session.plan.cold_bytes / 1e9:.0f} GB to {broker.name}")
        with Requester(broker.port) as requester:
            requester.create_topic(COLD_TOPIC, LARGE_PARTITIONS)
        programs.run(
            "load",
            "produce",
            brokers=f"127.0.0.1:{broker.port}",
            topic=COLD_TOPIC,
            partitions=LARGE_PARTITIONS,
            size=COLD_RECORD,
            count=per_round * rounds,
            batch_bytes=1_000_000,
        )
    for number, broker in session.interleaved("beside a cold reader", rounds):
        evict_from_page_cache(broker.data)
        with topic(broker, f"beside-{number}", 1):
            _beside_cold_reader(session, broker, f"beside-{number}", number * per_round, per_round)
    for broker in session.pair():
        with Requester(broker.port) as requester:
            requester.delete_topic(COLD_TOPIC)


def _beside_cold_reader(session: Session, broker: Broker, name: str, first: int, count: int) -> None:
    address = f"127.0.0.1:{broker.port}"
    with programs.started(
        "load",
        "latency",
        brokers=address,
        topic=name,
        size=SIZE,
        rate=RATE,
        seconds=0,
        warm_seconds=WARM_SECONDS,
    ) as latency:
        time.sleep(WARM_SECONDS)
        read = programs.run(
            "load",
            "consume",
            brokers=address,
            topic=COLD_TOPIC,
            partitions=LARGE_PARTITIONS,
            **{"from": first // LARGE_PARTITIONS},
            count=count,
        )
        _add(session, broker, "cold", programs.finish(latency))
    rate = read["bytes"] / 1e6 / read["seconds"]
    session.add(broker, "cold", "the cold reader itself", rate, "MB/s", Better.HIGHER)
