"""One run of the benchmark: its settings, the pair of brokers, where results gather."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench import programs
from bench.brokers import Broker, make, topic
from bench.measures import Better, Measures
from bench.progress import Progress

SMALL_PARTITIONS = 10
LARGE_PARTITIONS = 4
# So many batches of one record each are there to be fetched again and again.
FETCHED_RECORDS = 2000


@dataclass(slots=True)
class Plan:
    """How much to measure. Quick figures show direction only."""

    rounds: int
    quick: bool
    cold_bytes: int
    scale_peer_partitions: int
    attacks: Sequence[str] = ()
    # Where the braidlog is that stands in Kafka's place.
    checkout: Path | None = None

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(slots=True)
class Session:
    plan: Plan
    names: Sequence[str]
    work: Path
    measures: Measures = field(default_factory=Measures)
    progress: Progress = field(default_factory=Progress)
    notes: list[str] = field(default_factory=list)
    _running: list[Broker] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)
    _fresh: int = 0
    _warm: bool = False

    def fresh(self, name: str) -> Broker:
        """A broker over an empty data directory, not started."""
        self._fresh += 1
        return make(name, self.work / f"{name}-{self._fresh}", self.plan.checkout)

    def discard(self, broker: Broker) -> None:
        shutil.rmtree(broker.data, ignore_errors=True)

    def pair(self) -> list[Broker]:
        """The brokers that live through most of the run, warmed up before the first use."""
        if not self._running:
            for name in self.names:
                broker = self.fresh(name)
                self.progress.show(f"starting {name}")
                self._stack.callback(broker.kill)
                broker.start()
                self._running.append(broker)
        if not self._warm:
            for broker in self._running:
                self.progress.show(f"warming up {broker.name}")
                warm_up(broker, self.plan.scaled(6, 2))
            self._warm = True
        return self._running

    def interleaved(self, what: str, rounds: int | None = None) -> Iterator[tuple[int, Broker]]:
        """A B A B …: whatever disturbs the machine disturbs neighbours alike."""
        count = rounds or self.plan.rounds
        for number in range(count):
            for broker in self.pair():
                self.progress.show(f"{what}: round {number + 1} of {count}, {broker.name}")
                yield number, broker

    def add(
        self,
        broker: Broker,
        group: str,
        name: str,
        value: float,
        unit: str,
        better: Better,
        target: float | None = None,
        limit: float | None = None,
    ) -> None:
        self.measures.add(broker.name, group, name, value, unit, better, target, limit)

    def close(self) -> None:
        self._stack.close()
        shutil.rmtree(self.work, ignore_errors=True)


def readable(written: programs.Result) -> int:
    """How many offsets of each small partition surely exist after a run that wrote to all of them in turn."""
    return max(1, min(FETCHED_RECORDS, int(written["requests"]) // SMALL_PARTITIONS))


def warm_up(broker: Broker, seconds: int) -> None:
    """Every path that is measured later, often enough for a just-in-time compiler to have settled."""
    serial = time.monotonic_ns()
    with topic(broker, f"warm-small-{serial}", SMALL_PARTITIONS) as name:
        small: dict[str, programs.Option] = {
            "port": broker.port,
            "topic": name,
            "partitions": SMALL_PARTITIONS,
        }
        written = programs.run("tiny", "produce", connections=50, in_flight=5, seconds=seconds, **small)
        programs.run("tiny", "produce", connections=1, seconds=1, **small)
        programs.run("tiny", "fetch", connections=50, records=readable(written), seconds=seconds / 2, **small)
    for codec in ("none", "lz4"):
        with topic(broker, f"warm-{codec}-{serial}", LARGE_PARTITIONS) as name:
            load: dict[str, programs.Option] = {
                "brokers": f"127.0.0.1:{broker.port}",
                "topic": name,
                "partitions": LARGE_PARTITIONS,
            }
            for batch_bytes, count in ((16384, 300_000 * seconds), (1_000_000, 300_000 * seconds)):
                programs.run("load", "produce", size=100, count=count, batch_bytes=batch_bytes, codec=codec, **load)
                programs.run("load", "consume", count=count, **load)
