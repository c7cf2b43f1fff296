"""The progress of a running query as Spark reports it: rows per second, time per batch, lag."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_braidlog.jobs.checkpoint import Positions, read_source
from pyspark_braidlog.source.source_lag import LAG


@dataclass(frozen=True, slots=True)
class QueryProgress:
    name: str
    batch: int
    rows: int
    rows_per_s: float
    batch_ms: int
    # None where no source reported the end of its topics.
    lag: int | None
    # The age of the oldest unread record; None where no source reported it.
    lag_s: float | None = None
    # Not so of the reports that Spark makes of a query that has nothing to do.
    is_batch: bool = True
    reads_topics: bool = False

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> QueryProgress:
        return cls(
            name=str(progress.get("name") or f"query {str(progress.get('id', ''))[:8]}"),
            batch=int(progress.get("batchId", 0)),
            rows=int(progress.get("numInputRows") or 0),
            rows_per_s=float(progress.get("processedRowsPerSecond") or 0.0),
            batch_ms=int(progress.get("batchDuration") or 0),
            lag=lag_of(progress.get("sources") or ()),
            lag_s=lag_seconds_of(progress.get("sources") or ()),
            is_batch="addBatch" in (progress.get("durationMs") or {"addBatch": 0}),
            reads_topics=any(positions_of(each.get("endOffset")) for each in progress.get("sources") or ()),
        )

    def text(self) -> str:
        lag = "" if self.lag is None else f", lag {self.lag:,}"
        if self.lag_s:
            lag += f" ({self.lag_s:,.0f} s)"
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


def lag_seconds_of(sources: Iterable[Mapping[str, Any]]) -> float | None:
    """The lag of the source that is furthest behind, among those that report it."""
    found: list[float] = []
    for source in sources:
        latest = source.get("latestOffset")
        try:
            reported: Any = json.loads(latest) if isinstance(latest, str) else latest
            seconds = reported[LAG]["seconds"]
        except (ValueError, TypeError, KeyError):
            continue
        if isinstance(seconds, int | float):
            found.append(float(seconds))
    return max(found, default=None)


def positions_of(offset: object) -> Positions:
    """The positions in an offset as Spark reports it: JSON text, or the decoded value."""
    if not isinstance(offset, str):
        offset = json.dumps(offset)
    try:
        return read_source(offset).positions or {}
    except ValueError:
        return {}
