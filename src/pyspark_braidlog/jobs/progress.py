"""How a running query does: rows a second, time a batch, lag; from what Spark reports after each batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_braidlog.jobs.checkpoint import Positions, read_source


@dataclass(frozen=True, slots=True)
class QueryPace:
    name: str
    batch: int
    rows: int
    rows_per_s: float
    batch_ms: int
    # None where no source told how much there is.
    lag: int | None

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> QueryPace:
        return cls(
            name=str(progress.get("name") or f"query {str(progress.get('id', ''))[:8]}"),
            batch=int(progress.get("batchId", 0)),
            rows=int(progress.get("numInputRows") or 0),
            rows_per_s=float(progress.get("processedRowsPerSecond") or 0.0),
            batch_ms=int(progress.get("batchDuration") or 0),
            lag=lag_of(progress.get("sources") or ()),
        )

    def text(self) -> str:
        lag = "" if self.lag is None else f", lag {self.lag:,}"
        return (
            f"{self.name}: batch {self.batch}, {self.rows_per_s:,.0f} rows/s, {self.batch_ms / 1000:.1f} s a batch{lag}"
        )


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records between where the query is and where the topics end, of all sources that are topics."""
    total: int | None = None
    for source in sources:
        end, latest = positions_of(source.get("endOffset")), positions_of(source.get("latestOffset"))
        if end and latest:
            behind = sum(max(latest[place] - offset, 0) for place, offset in end.items() if place in latest)
            total = behind + (total or 0)
    return total


def positions_of(offset: object) -> Positions:
    """Of an offset as Spark reports it: JSON, or what that stands for."""
    if not isinstance(offset, str):
        offset = json.dumps(offset)
    try:
        return read_source(offset).positions or {}
    except ValueError:
        return {}
