"""Runs the queries of a pipeline until they end or are stopped, and reports their progress as Spark gives it."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlparse

from braidlog.core.errors import UserError
from pyspark_braidlog.jobs.checkpoint import Positions, read_source
from pyspark_braidlog.jobs.run_lock import RunLock
from pyspark_braidlog.source.source_lag import LAG

FUNCTION: Final = "pipeline"
_LOOK_EVERY_S: Final = 0.25

Pipeline = Callable[[Any], object]


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


class Query(Protocol):
    """What is needed of Spark's StreamingQuery."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def isActive(self) -> bool: ...
    @property
    def lastProgress(self) -> Any: ...
    @property
    def recentProgress(self) -> list[Any]: ...
    def exception(self) -> BaseException | None: ...
    def stop(self) -> None: ...


def load_pipeline(path: Path) -> Pipeline:
    """The file's function; its neighbours can be imported from it."""
    from pyspark import cloudpickle

    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = spec_from_file_location(f"braidlog_pipeline_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(
            f"{path} is no Python file; give one that ends in .py, or the directory of a declarative project"
        )
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    # Executors cannot import it: its functions are sent to them whole.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spec.loader.exec_module(module)
    found = getattr(module, FUNCTION, None)
    if not callable(found):
        raise UserError(
            f"{path} defines no function `{FUNCTION}`: write `def {FUNCTION}(spark): return ….writeStream…`, which "
            "returns a query or several"
        )
    function: Pipeline = found
    return function


def start(made: object, *, available_now: bool) -> list[Query]:
    """Start what a pipeline returned, unless it did so itself."""
    parts: list[object]
    if isinstance(made, Mapping):
        parts = [each.queryName(name) if hasattr(each, "queryName") else each for name, each in made.items()]
    elif isinstance(made, Iterable):
        parts = list(made)
    else:
        parts = [made]
    queries: list[Query] = []
    try:
        for each in parts:
            queries.append(_started(each, available_now))
        if not queries:
            raise UserError(f"`{FUNCTION}` returned no query: return what .writeStream gives, or a list of those")
    except BaseException:
        stop(queries)
        raise
    return queries


def _started(made: Any, available_now: bool) -> Query:
    if hasattr(made, "trigger") and hasattr(made, "start"):
        started: Query = (made.trigger(availableNow=True) if available_now else made).start()
        return started
    if hasattr(made, "isActive") and hasattr(made, "awaitTermination"):
        if available_now:
            made.stop()
            raise UserError(
                f"--available-now sets the trigger, and `{FUNCTION}` started its query already: return it "
                "without .start()"
            )
        query: Query = made
        return query
    kind = "nothing" if made is None else f"a {type(made).__name__}"
    raise UserError(f"`{FUNCTION}` returned {kind}: return what .writeStream gives, with or without .start()")


class QueryMonitor:
    """Watches queries until they end, one fails, or a stop is requested."""

    def __init__(self, queries: list[Query], show: Callable[[str], None]) -> None:
        self.queries = queries
        self.rows = dict.fromkeys((query.id for query in queries), 0)
        self.paces: dict[str, QueryProgress] = {}
        self.batches = dict.fromkeys((query.id for query in queries), 0)
        self._show = show
        # The last batch that was counted, and the last report that was looked at.
        self._counted = dict.fromkeys((query.id for query in queries), -1)
        self._looked_at: dict[str, tuple[object, object]] = {}
        self._ended: set[str] = set()

    def run(self, is_over: threading.Event) -> BaseException | None:
        """What one of the queries failed with, if one did; the others are left to the caller to stop."""
        while not is_over.wait(_LOOK_EVERY_S):
            self.look()
            for query in self.queries:
                if query.isActive:
                    continue
                problem = query.exception()
                if problem is not None:
                    return problem
                self._ended.add(query.id)
            if not any(query.isActive for query in self.queries):
                break
        self.look()
        return None

    def look(self) -> None:
        for query in self.queries:
            last = query.lastProgress
            if last is None:
                continue
            stamp = (last.get("batchId"), last.get("timestamp"))
            if stamp == self._looked_at.get(query.id):
                # All reports are a hundred answers from Java: only when there is something new in them.
                continue
            self._looked_at[query.id] = stamp
            for progress in query.recentProgress:
                self._take(query.id, QueryProgress.of(progress))
        if self.paces:
            self._show(" | ".join(pace.text() for pace in self.paces.values()))

    def _take(self, query_id: str, pace: QueryProgress) -> None:
        before = self.paces.get(query_id)
        if pace.is_batch and pace.batch > self._counted[query_id]:
            self._counted[query_id] = pace.batch
            self.rows[query_id] += pace.rows
            self.batches[query_id] += 1
            self.paces[query_id] = pace
        elif not pace.is_batch and pace.batch > self._counted[query_id]:
            # While a query idles, what may change is how much there is to read.
            self.paces[query_id] = pace if before is None else replace(before, lag=pace.lag, lag_s=pace.lag_s)

    def lag(self, query_id: str) -> int | None:
        """None where nothing is known: of a query that reads no topics, or was stopped before its first batch.

        A batch that is tried again is reported without what there is to read. A query that then ended by itself had
        nothing left to read.
        """
        pace = self.paces.get(query_id)
        if pace is None or pace.lag is not None:
            return None if pace is None else pace.lag
        return 0 if pace.reads_topics and query_id in self._ended else None


def stop(queries: Iterable[Query]) -> None:
    """Stops all of them, even if one fails to stop; an interrupted batch is run again at the next start."""
    for query in queries:
        try:
            query.stop()
        except Exception:
            traceback.print_exc()


def silence_python_tracebacks(spark: Any) -> None:
    """Before queries are stopped: their planning processes print tracebacks while they are ended.

    What they print passes through Java's standard error, which drops everything once it is closed.
    """
    try:
        spark._jvm.java.lang.System.err.close()
    except Exception:
        # A remote session has no Java here, and whatever else is wrong does not keep anybody from stopping.
        return


def lock_checkpoints(queries: Iterable[Query]) -> list[RunLock]:
    """Lock the checkpoints against `replay` and other runs; only where a checkpoint is a local directory."""
    locks: list[RunLock] = []
    for query in queries:
        place = checkpoint_of(query)
        if place is not None:
            lock = RunLock(place)
            if not lock.take():
                raise UserError(f"the checkpoint {place} is in use: {lock.holder()} runs this query; stop it first")
            locks.append(lock)
    return locks


def checkpoint_of(query: Any) -> Path | None:
    """Python does not know where a query's checkpoint is; the JVM is asked, where there is one."""
    try:
        root = str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    except Exception:
        return None
    parts = urlparse(root)
    path = Path(unquote(parts.path)) if parts.scheme in ("", "file") else None
    return path if path is not None and path.is_dir() else None
