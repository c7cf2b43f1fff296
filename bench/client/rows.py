"""The rows of the client benchmark: who is measured, with how much, and what is wanted of the result."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench.client.task import BATCH, CALL, ONE
from bench.measures import Better, Measure, Verdict

OURS, CONFLUENT, KAFKA_PYTHON, AIOKAFKA, ARROW = "ours", "confluent", "kafka_python", "aio", "arrow"
TITLES: Final = {
    OURS: "braidlog",
    CONFLUENT: "confluent-kafka",
    KAFKA_PYTHON: "kafka-python",
    AIOKAFKA: "aiokafka",
    ARROW: "braidlog, Arrow",
}
CLIENTS: Final = (OURS, CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
PRODUCE, CONSUME = "produce", "consume"
SIZES: Final = (100, 200, 1024)
SIZE_NAMES: Final = {100: "100 B", 200: "200 B", 1024: "1 KiB"}

# One record at a time: braidlog over the other.
RATIO_TARGETS: Final[Mapping[str, float]] = {CONFLUENT: 1.0, KAFKA_PYTHON: 3.0}
# Records a second of one process at 200 bytes, by the source documents' own figures.
HEADLINES: Final = {PRODUCE: 250_000.0, CONSUME: 550_000.0}
ARROW_TARGET: Final = 2_000_000.0

# How many records take a few seconds, at 100 and 200 bytes; at 1 KiB it is half.
_COUNTS: Final = {
    (PRODUCE, OURS): 600_000,
    (PRODUCE, CONFLUENT): 600_000,
    (PRODUCE, KAFKA_PYTHON): 120_000,
    (PRODUCE, AIOKAFKA): 120_000,
    (PRODUCE, ARROW): 4_000_000,
    (CONSUME, OURS): 1_500_000,
    (CONSUME, CONFLUENT): 1_500_000,
    (CONSUME, KAFKA_PYTHON): 200_000,
    (CONSUME, AIOKAFKA): 200_000,
    (CONSUME, ARROW): 4_000_000,
}


@dataclass(slots=True)
class Row:
    """One kind of load and what every client made of it, a value a round: records/s, and CPU seconds per million."""

    action: str
    mode: str
    size: int
    rates: Measure = field(init=False)
    costs: Measure = field(init=False)

    def __post_init__(self) -> None:
        self.rates = Measure(self.action, self.name, "records/s", Better.HIGHER)
        self.costs = Measure(self.action, self.name, "CPU s per million", Better.LOWER)

    @property
    def name(self) -> str:
        how = {ONE: "one at a time", CALL: "one a call", BATCH: "by batches", ARROW: "Arrow, one core"}[self.mode]
        return f"{SIZE_NAMES[self.size]}, {how}"

    @property
    def clients(self) -> tuple[str, ...]:
        if self.mode == ARROW:
            return (ARROW,)
        if self.mode == CALL:
            # The others' loops are such calls already, or cannot be: see the drivers.
            return (OURS, CONFLUENT, AIOKAFKA)
        if self.mode == BATCH:
            # Only those that have a call for it; what braidlog sends many records by is the Arrow row.
            return (CONFLUENT,) if self.action == PRODUCE else CLIENTS
        return CLIENTS

    def count(self, client: str, quick: bool) -> int:
        count = _COUNTS[self.action, client] // (2 if self.size > 512 else 1)
        return count // 5 if quick else count

    def add(self, client: str, seconds: float, cpu_seconds: float, records: int) -> None:
        self.rates.add(client, records / seconds)
        self.costs.add(client, cpu_seconds / records * 1e6)

    def ratio(self, other: str) -> float | None:
        """braidlog's median rate over the other's."""
        ours, theirs = self.rates.median(OURS), self.rates.median(other)
        return ours / theirs if ours is not None and theirs else None

    def targets(self) -> list[tuple[str, Verdict]]:
        """What is wanted of this row, in words, and whether it was reached."""
        found: list[tuple[str, Verdict]] = []
        if self.mode == ONE:
            for other, bound in RATIO_TARGETS.items():
                found.append((f"≥ {bound:g}× {TITLES[other]}", _verdict(self.ratio(other), bound)))
            if self.size == 200:
                bound = HEADLINES[self.action]
                found.append((f"≥ {bound:,.0f}/s", _verdict(self.rates.median(OURS), bound)))
        elif self.mode == ARROW:
            found.append((f"≥ {ARROW_TARGET:,.0f}/s", _verdict(self.rates.median(ARROW), ARROW_TARGET)))
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "mode": self.mode,
            "size": self.size,
            "rates": self.rates.values,
            "costs": self.costs.values,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Row:
        row = Row(found["action"], found["mode"], found["size"])
        row.rates.values = dict(found["rates"])
        row.costs.values = dict(found["costs"])
        return row


def _verdict(value: float | None, bound: float) -> Verdict:
    if value is None:
        return Verdict.NOT_MEASURED
    return Verdict.REACHED if value >= bound else Verdict.NOT_REACHED


def all_rows(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    rows = [Row(action, mode, size) for action in (PRODUCE, CONSUME) for mode in (ONE, BATCH) for size in sizes]
    rows += [Row(CONSUME, CALL, 200)] if 200 in sizes else []
    return rows + [Row(action, ARROW, 100) for action in (PRODUCE, CONSUME) if 100 in sizes]


def mean_ratio(rows: list[Row], action: str, other: str) -> float | None:
    ratios = [ratio for row in rows if row.action == action and row.mode == ONE and (ratio := row.ratio(other))]
    return statistics.geometric_mean(ratios) if ratios else None
