"""Requests of one record each: per second on 1 and 50 connections, and with an fsync before each acknowledgement."""

from __future__ import annotations

from bench import programs
from bench.brokers import topic
from bench.measures import Better
from bench.session import SMALL_PARTITIONS, Session, readable

TARGET_FIFTY = 1.0
TARGET_FSYNC = 5.0
# Connections, requests in flight on each, target. One connection has no target of its own.
SHAPES = ((1, 1, None), (50, 1, TARGET_FIFTY), (50, 5, TARGET_FIFTY))


def measure_tiny(session: Session) -> None:
    seconds = session.plan.scaled(2, 1)
    for number, broker in session.interleaved("tiny requests"):
        name = f"tiny-{number}"
        common: dict[str, programs.Option] = {
            "port": broker.port,
            "topic": name,
            "partitions": SMALL_PARTITIONS,
            "seconds": seconds,
        }
        with topic(broker, name, SMALL_PARTITIONS):
            for connections, in_flight, target in SHAPES:
                result = programs.run("tiny", "produce", connections=connections, in_flight=in_flight, **common)
                title = f"produce, {_shape(connections, in_flight)}"
                rate = result["requests"] / result["seconds"]
                session.add(broker, "tiny", title, rate, "requests/s", Better.HIGHER, target)
            records = readable(result)
            for connections, in_flight, target in SHAPES[:2]:
                result = programs.run(
                    "tiny",
                    "fetch",
                    connections=connections,
                    in_flight=in_flight,
                    records=records,
                    **common,
                )
                title = f"fetch, {_shape(connections, in_flight)}"
                rate = result["requests"] / result["seconds"]
                session.add(broker, "tiny", title, rate, "requests/s", Better.HIGHER, target)


def measure_fsync(session: Session) -> None:
    seconds = session.plan.scaled(2, 1)
    for number, broker in session.interleaved("fsync per message"):
        for partitions in (1, SMALL_PARTITIONS):
            name = f"fsync-{partitions}-{number}"
            with topic(broker, name, partitions, {"flush.messages": "1"}):
                result = programs.run(
                    "tiny",
                    "produce",
                    port=broker.port,
                    topic=name,
                    partitions=partitions,
                    connections=50,
                    seconds=seconds,
                )
            rate = result["requests"] / result["seconds"]
            title = f"50 connections, {partitions} partition{'s' if partitions > 1 else ''}"
            session.add(broker, "fsync", title, rate, "messages/s", Better.HIGHER, TARGET_FSYNC)


def _shape(connections: int, in_flight: int) -> str:
    return f"{connections} connection{'s' if connections > 1 else ''}, {in_flight} in flight"
