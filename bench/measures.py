"""What was measured, and the arithmetic over it: medians over rounds, ratios of medians, spread, verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

BRAIDLOG, KAFKA = "braidlog", "kafka"
# Another checkout of braidlog, measured in Kafka's place: the code before a change.
BEFORE = "before"


class Better(Enum):
    HIGHER = "higher"
    LOWER = "lower"


class Verdict(Enum):
    REACHED = "reached"
    NOT_REACHED = "not reached"
    NOT_MEASURED = "not measured"
    NO_TARGET = ""


@dataclass(slots=True)
class Measure:
    """One row: a value per round for each broker. `target` bounds the ratio braidlog / peer, `limit` our value."""

    group: str
    name: str
    unit: str
    better: Better
    target: float | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    limit: float | None = None

    def add(self, broker: str, value: float) -> None:
        self.values.setdefault(broker, []).append(value)

    def median(self, broker: str) -> float | None:
        values = self.values.get(broker)
        return statistics.median(values) if values else None

    def spread(self, broker: str) -> tuple[float, float] | None:
        values = self.values.get(broker)
        return (min(values), max(values)) if values else None

    @property
    def peer(self) -> str:
        return BEFORE if BEFORE in self.values else KAFKA

    def ratio(self) -> float | None:
        """Median over median, so that one disturbed round moves nothing."""
        ours, theirs = self.median(BRAIDLOG), self.median(self.peer)
        if ours is None or theirs is None or theirs == 0:
            return None
        return ours / theirs

    def ratio_spread(self) -> tuple[float, float] | None:
        """The least and the greatest ratio of one round to its neighbour, when both brokers did every round."""
        pairs = list(zip(self.values.get(BRAIDLOG, []), self.values.get(self.peer, []), strict=False))
        ratios = [ours / theirs for ours, theirs in pairs if theirs != 0]
        return (min(ratios), max(ratios)) if ratios else None

    def verdict(self) -> Verdict:
        bound, value = (self.target, self.ratio()) if self.limit is None else (self.limit, self.median(BRAIDLOG))
        if bound is None:
            return Verdict.NO_TARGET
        if value is None:
            return Verdict.NOT_MEASURED
        met = value >= bound if self.better is Better.HIGHER else value <= bound
        return Verdict.REACHED if met else Verdict.NOT_REACHED

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "better": self.better.value,
            "target": self.target,
            "values": self.values,
            "limit": self.limit,
        }

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Measure:
        return Measure(
            row["group"],
            row["name"],
            row["unit"],
            Better(row["better"]),
            row["target"],
            dict(row["values"]),
            row.get("limit"),
        )


class Measures:
    """The rows of a run, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Measure] = {}

    def add(
        self,
        broker: str,
        group: str,
        name: str,
        value: float,
        unit: str,
        better: Better,
        target: float | None = None,
        limit: float | None = None,
    ) -> None:
        row = self._rows.setdefault((group, name), Measure(group, name, unit, better, target, limit=limit))
        row.add(broker, value)

    def group(self, group: str) -> list[Measure]:
        return [row for row in self._rows.values() if row.group == group]

    def rows(self) -> list[Measure]:
        return list(self._rows.values())


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """The mean that suits ratios: half as fast and twice as fast cancel out."""
    return statistics.geometric_mean(ratios) if ratios else None
