"""From nothing to the first answer, and the memory held idle and under load; every round a new process."""

from __future__ import annotations

import time

from bench import programs
from bench.brokers import Broker, topic
from bench.machine import peak_resident_bytes, proportional_bytes, resident_bytes
from bench.measures import Better
from bench.requests import Requester
from bench.session import LARGE_PARTITIONS, SMALL_PARTITIONS, Session

TARGET_START = 0.15
TARGET_MEMORY = 0.2
ROUNDS = 3
# What a broker still does after its first answer (class loading, first metadata) is over by then.
SETTLE_SECONDS = 2.0
MIB = 2**20


def _rounds(session: Session) -> int:
    return min(session.plan.rounds, session.plan.scaled(ROUNDS, 1))


def measure_startup(session: Session) -> None:
    for number in range(_rounds(session)):
        for name in session.names:
            session.progress.show(f"start-up: round {number + 1}, {name}")
            broker = session.fresh(name)
            try:
                for kind in ("empty data directory", "after a clean stop, 100 partitions"):
                    broker.start()
                    session.add(broker, "startup", kind, broker.start_seconds * 1e3, "ms", Better.LOWER, TARGET_START)
                    if kind == "empty data directory":
                        _fill_hundred_partitions(broker)
                    broker.stop()
            finally:
                broker.kill()
                session.discard(broker)


def _fill_hundred_partitions(broker: Broker) -> None:
    with Requester(broker.port) as requester:
        requester.create_topic("hundred", 100)
    programs.run("tiny", "touch", port=broker.port, topic="hundred", partitions=100)


def measure_memory(session: Session) -> None:
    for number in range(_rounds(session)):
        for name in session.names:
            session.progress.show(f"memory: round {number + 1}, {name}")
            broker = session.fresh(name)
            try:
                broker.start()
                time.sleep(SETTLE_SECONDS)
                _add(session, broker, "idle, resident", resident_bytes(broker.pid))
                _add(session, broker, "idle, proportional", proportional_bytes(broker.pid))
                _put_under_load(session, broker)
                _add(session, broker, "under load, peak resident", peak_resident_bytes(broker.pid))
                _add(session, broker, "after load, resident", resident_bytes(broker.pid))
                broker.stop()
            finally:
                broker.kill()
                session.discard(broker)


def _add(session: Session, broker: Broker, title: str, value: int) -> None:
    session.add(broker, "memory", title, value / MIB, "MiB", Better.LOWER, TARGET_MEMORY)


def _put_under_load(session: Session, broker: Broker) -> None:
    """Fifty connections of small requests, then large batches in and out, plain and compressed."""
    seconds = session.plan.scaled(3, 1)
    with topic(broker, "small", SMALL_PARTITIONS):
        programs.run(
            "tiny",
            "produce",
            port=broker.port,
            topic="small",
            partitions=SMALL_PARTITIONS,
            connections=50,
            in_flight=5,
            seconds=seconds,
        )
    address = f"127.0.0.1:{broker.port}"
    for codec in ("none", "lz4"):
        count = session.plan.scaled(300_000, 100_000)
        with topic(broker, codec, LARGE_PARTITIONS):
            programs.run(
                "load",
                "produce",
                brokers=address,
                topic=codec,
                partitions=LARGE_PARTITIONS,
                size=1024,
                count=count,
                codec=codec,
            )
            programs.run("load", "consume", brokers=address, topic=codec, partitions=LARGE_PARTITIONS, count=count)
