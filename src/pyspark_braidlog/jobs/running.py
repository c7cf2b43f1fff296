"""Queries of a Python file: loaded, started, watched, stopped.

The file is ordinary PySpark and defines one function:

    def pipeline(spark):
        orders = spark.readStream.format("braidlog")…load()
        return orders.writeStream.format("braidlog").queryName("clean")…      # not started, or started; or several
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlparse

from braidlog.core.errors import UserError
from pyspark_braidlog.jobs.progress import QueryPace
from pyspark_braidlog.jobs.run_lock import RunLock

FUNCTION: Final = "pipeline"
_LOOK_EVERY_S: Final = 0.25

Pipeline = Callable[[Any], object]


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


class Watch:
    """Looks after queries until they end, one fails, or somebody says stop."""

    def __init__(self, queries: list[Query], show: Callable[[str], None]) -> None:
        self.queries = queries
        self.rows = dict.fromkeys((query.id for query in queries), 0)
        self.paces: dict[str, QueryPace] = {}
        self.batches = dict.fromkeys((query.id for query in queries), 0)
        self._show = show

    def run(self, is_over: threading.Event) -> BaseException | None:
        """What one of the queries failed with, if one did; the others are left to the caller to stop."""
        while not is_over.wait(_LOOK_EVERY_S):
            self.look()
            for query in self.queries:
                problem = query.exception() if not query.isActive else None
                if problem is not None:
                    return problem
            if not any(query.isActive for query in self.queries):
                break
        self.look()
        return None

    def look(self) -> None:
        for query in self.queries:
            seen = self.paces[query.id].batch if query.id in self.paces else -1
            last = query.lastProgress
            if last is None or QueryPace.of(last).batch == seen:
                # All reports are a hundred answers from Java: only when there is something in them.
                continue
            for progress in query.recentProgress:
                pace = QueryPace.of(progress)
                # Spark repeats the newest while a query idles.
                if pace.batch > seen:
                    seen = pace.batch
                    self.rows[query.id] += pace.rows
                    self.batches[query.id] += 1
                    self.paces[query.id] = pace
        if self.paces:
            self._show(" | ".join(pace.text() for pace in self.paces.values()))


def stop(queries: Iterable[Query]) -> None:
    """All of them, whatever one of them thinks of it; a batch that is cut short is done again at the next start."""
    for query in queries:
        try:
            query.stop()
        except Exception:
            traceback.print_exc()


def hush(spark: Any) -> None:
    """Before queries are stopped: the processes that plan for them complain about it, in the midst of being ended.

    What they print passes through Java's standard error, which drops everything once it is closed.
    """
    try:
        spark._jvm.java.lang.System.err.close()
    except Exception:
        # A remote session has no Java here, and whatever else is wrong does not keep anybody from stopping.
        return


def lock_checkpoints(queries: Iterable[Query]) -> list[RunLock]:
    """Tell `replay` and other runs that somebody is at it; only where a checkpoint is a directory here."""
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
    """Python is not told where a query's checkpoint is; Java is asked, where there is one."""
    try:
        root = str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    except Exception:
        return None
    parts = urlparse(root)
    path = Path(unquote(parts.path)) if parts.scheme in ("", "file") else None
    return path if path is not None and path.is_dir() else None
