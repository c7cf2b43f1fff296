"""De-duplication and aggregation by the time of events, with late ones waited for up to a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.decoding import quoted

Aggregates = Mapping[str, Column | str]


def deduplicate(frame: DataFrame, keys: str | Sequence[str], *, within: str, on: str = "timestamp") -> DataFrame:
    """Keep the first of the rows that agree in `keys` and lie within this time of each other.

    A stream remembers a key for that long after its first row, by the watermark: a duplicate that comes later than
    that, or is that much older than the newest row seen, may pass or be dropped as late. A batch keeps a row when
    none of its key came within that time before it.
    """
    names = _names(keys)
    _need(frame, (*names, on), "deduplicate")
    if frame.isStreaming:
        return frame.withWatermark(on, within).dropDuplicatesWithinWatermark(names)
    order = [quoted(name) for name in (on, "partition", "offset") if name in frame.columns]
    before = F.lag(quoted(on)).over(Window.partitionBy(*map(quoted, names)).orderBy(*order))
    previous = "__previous_time"
    recent = F.col(previous) + F.expr(f"INTERVAL {within}") >= quoted(on)
    return frame.withColumn(previous, before).where(F.col(previous).isNull() | ~recent).drop(previous)


def windowed(
    frame: DataFrame,
    *,
    on: str = "timestamp",
    size: str,
    slide: str | None = None,
    late: str | None,
    by: str | Sequence[str] = (),
    aggregates: Aggregates,
) -> DataFrame:
    """One row for each window of time and each value of `by`: window_start, window_end, by…, aggregates….

    `aggregates` are columns or SQL by their names: `{"orders": "count(*)", "paid": F.sum("amount")}`. `late` is how
    much older than the newest event one may be and still count; with None a stream keeps every window for ever, and
    can only be written in update or complete mode. Windows are aligned to the epoch; `slide` makes them overlap.
    """
    spans = F.window(quoted(on), size, slide) if slide is not None else F.window(quoted(on), size)
    return _aggregated(frame, spans, on, late, by, aggregates, "windowed")


def sessions(
    frame: DataFrame,
    *,
    on: str = "timestamp",
    gap: str | Column,
    late: str | None,
    by: str | Sequence[str],
    aggregates: Aggregates,
) -> DataFrame:
    """One row for each run of events of `by` with no pause of `gap` or longer: session_start, session_end, by…, ….

    The session's end is its last event's time plus the gap.
    """
    spans = F.session_window(quoted(on), gap)
    return _aggregated(frame, spans, on, late, by, aggregates, "sessions", "session")


def _aggregated(
    frame: DataFrame,
    spans: Column,
    on: str,
    late: str | None,
    by: str | Sequence[str],
    aggregates: Aggregates,
    function: str,
    word: str = "window",
) -> DataFrame:
    names = _names(by)
    _need(frame, (on, *names), function)
    if not aggregates:
        raise UserError(f'{function} needs at least one aggregate, such as aggregates={{"events": "count(*)"}}')
    made = [(F.expr(how) if isinstance(how, str) else how).alias(name) for name, how in aggregates.items()]
    events = frame.withWatermark(on, late) if frame.isStreaming and late is not None else frame
    span = F.col("__span")
    grouped = events.groupBy(spans.alias("__span"), *map(quoted, names)).agg(*made)
    return grouped.select(
        span["start"].alias(f"{word}_start"),
        span["end"].alias(f"{word}_end"),
        *map(quoted, names),
        *map(quoted, aggregates),
    )


def _names(columns: str | Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _need(frame: DataFrame, columns: Sequence[str], function: str) -> None:
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise UserError(f"{function}: there is no column {missing[0]!r} among {', '.join(frame.columns)}")
