"""Produce, then consume what was produced: MB/s for each record size, batch size and codec, and CPU-seconds per GB."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from bench import programs
from bench.brokers import Broker, CpuWatch, topic
from bench.measures import Better
from bench.session import LARGE_PARTITIONS, Session

TARGET = 1.0
# librdkafka's own default is 1 MB already, so "default" is what the Java producer sends: 16 KiB.
BATCHES = (("16 KiB", 16384), ("1 MB", 1_000_000))
SIZES = (("100 B", 100), ("1 KiB", 1024))
SMALL_BATCH = 16384
CODECS = ("none", "lz4")


@dataclass(frozen=True, slots=True)
class Cell:
    size_name: str
    size: int
    batch_name: str
    batch_bytes: int
    codec: str

    def title(self) -> str:
        return f"{self.size_name} records, {self.batch_name} batches, {self.codec}"


CELLS = tuple(
    Cell(size_name, size, batch_name, batch_bytes, codec)
    for (size_name, size), (batch_name, batch_bytes), codec in itertools.product(SIZES, BATCHES, CODECS)
)


def measure(session: Session, groups: frozenset[str]) -> None:
    """`groups` of produce, consume and cpu; asked for CPU alone, only the plain cells run."""
    cells = CELLS if groups & {"produce", "consume"} else [cell for cell in CELLS if cell.codec == "none"]
    if session.plan.quick:
        cells = [cell for cell in cells if cell.codec == "none" or cell.batch_bytes > SMALL_BATCH]
    for cell in cells:
        for number, broker in session.interleaved(f"throughput, {cell.title()}"):
            _one_round(session, groups, cell, broker, f"load-{number}")


def _one_round(session: Session, groups: frozenset[str], cell: Cell, broker: Broker, name: str) -> None:
    megabytes = session.plan.scaled(600, 200) if cell.batch_bytes > SMALL_BATCH else session.plan.scaled(300, 100)
    count = megabytes * 1_000_000 // cell.size
    common: dict[str, programs.Option] = {
        "brokers": f"127.0.0.1:{broker.port}",
        "topic": name,
        "partitions": LARGE_PARTITIONS,
    }
    with topic(broker, name, LARGE_PARTITIONS):
        watch = CpuWatch(broker)
        produced = programs.run(
            "load",
            "produce",
            size=cell.size,
            count=count,
            batch_bytes=cell.batch_bytes,
            codec=cell.codec,
            acks=-1,
            **common,
        )
        produce_cpu = watch.seconds()
        watch = CpuWatch(broker)
        consumed = programs.run("load", "consume", count=count, **common)
        consume_cpu = watch.seconds()
    gigabytes = count * cell.size / 1e9
    for group, result, cpu in (("produce", produced, produce_cpu), ("consume", consumed, consume_cpu)):
        if group in groups:
            rate = result["bytes"] / 1e6 / result["seconds"]
            session.add(broker, group, cell.title(), rate, "MB/s", Better.HIGHER, TARGET)
        if "cpu" in groups:
            title = f"{group}, {cell.title()}"
            session.add(broker, "cpu", title, cpu / gigabytes, "CPU s/GB", Better.LOWER)
