"""`braidlog pipeline status` and `lag`: from checkpoints and groups, without Spark."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from braidlog.cli.options import connect
from braidlog.cli.output import Row, remark, show
from braidlog.cli.topic_selection import moment
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.records import ListedOffset, OffsetSpec
from braidlog.client.admin.results import Failure
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from pyspark_braidlog.jobs.checkpoint import Checkpoint, Positions, find_checkpoints, read_checkpoint
from pyspark_braidlog.jobs.run_lock import RunLock

_STATUS: Final = ("checkpoint", "query_id", "batch", "state", "last_batch", "watermark", "positions")
_LAG: Final = ("query", "source", "topic", "partition", "position", "log_end_offset", "lag")

# A query, or a consumer group; and its source, if that has a name.
_Reader = tuple[str, str | None]


def run_status(options: argparse.Namespace) -> int:
    rows = [status_row(each, options.output) for each in _checkpoints(options.checkpoints)]
    show(rows, options.output, _STATUS)
    return 0


def run_lag(options: argparse.Namespace) -> int:
    if not options.checkpoints and not options.group:
        raise UserError("say which queries: name their checkpoints, or their groups with --group")
    queries: dict[_Reader, Positions] = {}
    for each in _checkpoints(options.checkpoints):
        queries |= {(str(each.path), source): found for source, found in (each.by_source() or {None: {}}).items()}
    with connect(options) as cluster:
        admin = admin_over(cluster)
        if options.group:
            committed = admin.list_group_offsets(options.group).raise_for_errors()
            queries |= {
                (group, None): {place: value.offset for place, value in offsets.items()}
                for group, offsets in committed.items()
            }
        wanted = sorted({place for positions in queries.values() for place in positions})
        ends = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST)).outcomes
    rows = [row for (query, source), found in queries.items() for row in lag_rows(query, found, ends, source)]
    named = options.output == "json" or any(row["source"] for row in rows)
    show(rows, options.output, _LAG if named else tuple(each for each in _LAG if each != "source"))
    if options.output != "json":
        _remark_totals(dict.fromkeys(query for query, _ in queries), rows)
    return 0


def _checkpoints(paths: Iterable[str]) -> list[Checkpoint]:
    found = dict.fromkeys(each for path in paths for each in find_checkpoints(Path(path)))
    return [read_checkpoint(each) for each in found]


def status_row(checkpoint: Checkpoint, output: str, now_s: float | None = None) -> dict[str, Any]:
    """One query; in JSON its positions are objects, in a table `orders:0=12`."""
    planned, done = checkpoint.planned, checkpoint.done
    is_in_batch = planned is not None and (done is None or planned.number > done.number)
    holder = RunLock(checkpoint.path).holder()
    if planned is None:
        state = "no batch yet"
    elif is_in_batch:
        state = f"batch {planned.number} begun"
    else:
        state = "between batches"
    age = None if checkpoint.done_at_s is None else max((now_s or time.time()) - checkpoint.done_at_s, 0.0)
    watermark = (planned.watermark_ms if planned else 0) or None
    row: dict[str, Any] = {
        "checkpoint": str(checkpoint.path),
        "query_id": checkpoint.query_id,
        "batch": done.number if done else None,
        "state": f"{state}, running" if holder else state,
        "last_batch": None if age is None else f"{_age(age)} ago",
        "watermark": moment(watermark) if watermark else None,
        "positions": " ".join(_positions(checkpoint)) or None,
    }
    if output == "json":
        row |= {
            "state": state,
            "running": holder,
            "planned_batch": planned.number if planned else None,
            "last_batch": moment(round(checkpoint.done_at_s * 1000)) if checkpoint.done_at_s else None,
            "keeps_state": checkpoint.has_state,
            "positions": [row for source, found in checkpoint.by_source().items() for row in _json(source, found)],
        }
    return row


def _positions(checkpoint: Checkpoint) -> Iterator[str]:
    """`orders-0=12`, after the source's name if it has one: `clean:orders-0=12`."""
    for source, found in checkpoint.by_source().items():
        for place, offset in sorted(found.items()):
            yield f"{place}={offset}" if source is None else f"{source}:{place}={offset}"


def _json(source: str | None, positions: Positions) -> list[Row]:
    return [
        {"source": source, "topic": place.topic, "partition": place.partition, "offset": offset}
        for place, offset in sorted(positions.items())
    ]


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def lag_rows(
    query: str,
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, ListedOffset | Failure],
    source: str | None = None,
) -> list[Row]:
    rows: list[Row] = []
    for place, offset in sorted(positions.items()):
        end = ends.get(place)
        log_end = end.offset if isinstance(end, ListedOffset) and end.offset >= 0 else None
        rows.append(
            {
                "query": query,
                "source": source,
                "topic": place.topic,
                "partition": place.partition,
                "position": offset,
                "log_end_offset": log_end,
                "lag": None if log_end is None else max(log_end - offset, 0),
            }
        )
    return rows


def _remark_totals(queries: Iterable[str], rows: Sequence[Row]) -> None:
    for query in queries:
        own = [row["lag"] for row in rows if row["query"] == query]
        if not own:
            remark(f"{query} has no position in a topic")
        elif None in own:
            remark(
                f"{query}: of partitions with - the end is not known; is this the cluster that the query reads from?"
            )
        else:
            remark(f"{query} is {sum(own):,} record{'' if sum(own) == 1 else 's'} behind")
