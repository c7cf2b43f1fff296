"""The rows of the Spark benchmark: what is measured, with how much, and what is wanted of the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench.measures import Better, Measure, Verdict

# Who is measured. The sink of streams has two ways to deliver; elsewhere there is one.
OURS, ONCE, LEAST, JVM = "braidlog", "exactly-once", "at-least-once", "jvm"
READ_BATCH, READ_STREAM, WRITE_BATCH, WRITE_STREAM, FLOOR = (
    "read_batch",
    "read_stream",
    "write_batch",
    "write_stream",
    "floor",
)
ACTIONS: Final = (READ_BATCH, READ_STREAM, WRITE_BATCH, WRITE_STREAM, FLOOR)
TITLES: Final = {
    READ_BATCH: "Batch read",
    READ_STREAM: "AvailableNow stream read",
    WRITE_BATCH: "Batch write",
    WRITE_STREAM: "Stream write",
    FLOOR: "Micro-batch floor",
}
SIZES: Final = (100, 1024)
SIZE_NAMES: Final = {100: "100 B", 1024: "1 KiB"}
CODECS: Final = ("none", "lz4")
# The floor's rows: what a batch of one record costs, without a sink of ours and with it.
TO_NOTHING, TO_TOPIC = "to nothing", "to a topic"

# Rows a second at 100 bytes, uncompressed.
HEADLINES: Final[Mapping[str, float]] = {READ_BATCH: 1_000_000.0, READ_STREAM: 600_000.0}
RATIO_TARGET: Final = 1.0

_COUNTS: Final = {100: 4_000_000, 1024: 1_000_000}
_WRITE_SHARE: Final = 4
FLOOR_BATCHES: Final = 30


@dataclass(slots=True)
class Row:
    """One kind of load and what everybody made of it, a value a round."""

    action: str
    size: int
    # Of the records; for the floor where its batches go.
    variant: str
    measure: Measure = field(init=False)

    def __post_init__(self) -> None:
        unit, better = ("ms", Better.LOWER) if self.action == FLOOR else ("rows/s", Better.HIGHER)
        self.measure = Measure(self.action, self.name, unit, better)

    @property
    def name(self) -> str:
        if self.action == FLOOR:
            return f"one record a batch, {self.variant}"
        return f"{SIZE_NAMES[self.size]}, {'uncompressed' if self.variant == 'none' else self.variant}"

    @property
    def contestants(self) -> tuple[str, ...]:
        if self.action == WRITE_STREAM or (self.action == FLOOR and self.variant == TO_TOPIC):
            return (ONCE, LEAST, JVM)
        return (OURS, JVM)

    def count(self, quick: bool) -> int:
        count = _COUNTS[self.size]
        if self.action in (WRITE_BATCH, WRITE_STREAM):
            count //= _WRITE_SHARE
        return count // 4 if quick else count

    def ratio(self, ours: str) -> float | None:
        """Our median over the connector's."""
        mine, theirs = self.measure.median(ours), self.measure.median(JVM)
        return mine / theirs if mine is not None and theirs else None

    def ratio_spread(self, ours: str) -> tuple[float, float] | None:
        """The least and the greatest ratio of neighbours in a round."""
        pairs = zip(self.measure.values.get(ours, []), self.measure.values.get(JVM, []), strict=False)
        ratios = [mine / theirs for mine, theirs in pairs if theirs]
        return (min(ratios), max(ratios)) if ratios else None

    def targets(self) -> list[tuple[str, str, Verdict]]:
        """Of whom what is wanted, in words, and whether it was reached."""
        if self.action == FLOOR:
            return []
        found = []
        for ours in self.contestants:
            if ours != JVM:
                who = "" if ours == OURS else f", {ours}"
                wanted = f"≥ {RATIO_TARGET:g}× Spark's connector"
                found.append((self.name + who, wanted, _verdict(self.ratio(ours), RATIO_TARGET)))
        bound = HEADLINES.get(self.action)
        if bound is not None and self.size == 100 and self.variant == "none":
            found.append((self.name, f"> {bound:,.0f} rows/s", _verdict(self.measure.median(OURS), bound)))
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "size": self.size,
            "variant": self.variant,
            "values": self.measure.values,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Row:
        row = Row(found["action"], found["size"], found["variant"])
        row.measure.values = dict(found["values"])
        return row


def _verdict(value: float | None, bound: float) -> Verdict:
    if value is None:
        return Verdict.NOT_MEASURED
    return Verdict.REACHED if value >= bound else Verdict.NOT_REACHED


def all_rows(actions: list[str], sizes: list[int], codecs: list[str]) -> list[Row]:
    rows = [Row(action, size, codec) for action in actions if action != FLOOR for size in sizes for codec in codecs]
    if FLOOR in actions:
        rows += [Row(FLOOR, 100, TO_NOTHING), Row(FLOOR, 100, TO_TOPIC)]
    return rows
