"""`braidlog pipeline run`: queries of a Python file, watched until they are asked to stop; or a declarative project."""

from __future__ import annotations

import argparse
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Final

from braidlog.cli.options import pairs
from braidlog.cli.output import Progress, remark, show
from braidlog.core.errors import BraidlogError, UserError

SPECS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_EXIT_INTERRUPTED: Final = 130
_SUMMARY: Final = ("query", "id", "batches", "rows", "lag", "checkpoint")


def run(options: argparse.Namespace) -> int:
    path = Path(options.path)
    if not path.exists():
        raise UserError(f"{path} does not exist; give a Python file, or the directory of a declarative project")
    if find_spec("pyspark") is None:
        from pyspark_braidlog.session import HOW_TO_GET_SPARK

        raise UserError(HOW_TO_GET_SPARK)
    if path.is_dir() or path.name in SPECS:
        from braidlog.cli.pipelines.pipeline_project import run_project

        return run_project(path, options)
    return _run_file(path, options)


class Stop:
    """Whether the end was asked for: SIGTERM is how services are stopped, Ctrl-C how people do it."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.signal: int | None = None

    def hear(self, number: int, _frame: FrameType | None = None) -> None:
        self.signal = number
        self.is_over.set()

    @property
    def exit_code(self) -> int:
        return _EXIT_INTERRUPTED if self.signal == signal.SIGINT else 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _run_file(path: Path, options: argparse.Namespace) -> int:
    from pyspark_braidlog.jobs.preflight import check_sources
    from pyspark_braidlog.jobs.running import FUNCTION
    from pyspark_braidlog.session import SILENT, log_option, spark_session

    conf = pairs(options.conf, "--conf")
    # Lag of a query that idles, and of one that was stopped soon after it was killed, is some seconds old at most.
    conf.setdefault("spark.sql.streaming.noDataProgressEventInterval", "2s")
    if options.checkpoints:
        place = options.checkpoints
        conf["spark.sql.streaming.checkpointLocation"] = place if "://" in place else str(Path(place).resolve())
    if not options.traceback and "log4j" not in conf.get("spark.driver.extraJavaOptions", ""):
        own = conf.get("spark.driver.extraJavaOptions", "")
        conf["spark.driver.extraJavaOptions"] = f"{log_option(SILENT)} {own}".strip()
    progress = Progress()
    stop = Stop()
    with _clear_errors(path, options.traceback, progress):
        if options.remote is None:
            # With a remote session the server reaches the brokers, which need not be seen from here.
            check_sources(path, FUNCTION)
        progress.show("starting Spark…")
        spark = spark_session(path.stem, master=options.master, remote=options.remote, conf=conf, java=options.java)
        try:
            return _run_queries(spark, path, options, progress, stop)
        finally:
            progress.clear()
            spark.stop()


def _run_queries(spark: Any, path: Path, options: argparse.Namespace, progress: Progress, stop: Stop) -> int:
    from pyspark_braidlog.jobs import running

    made = running.load_pipeline(path)(spark)
    with stop.listening():
        queries = running.start(made, available_now=options.available_now)
        locks = []
        try:
            locks = running.lock_checkpoints(queries)
            watch = running.QueryMonitor(queries, progress.show)
            problem = watch.run(stop.is_over)
            places = {query.id: running.checkpoint_of(query) for query in queries}
        finally:
            if not options.traceback:
                running.silence_python_tracebacks(spark)
            running.stop(queries)
            for lock in locks:
                lock.release()
        if problem is not None:
            raise problem
        # Spark reports a batch a moment after it is done.
        watch.look()
        progress.clear()
        rows = [
            {
                "query": query.name or query.id,
                "id": query.id,
                "batches": watch.batches[query.id],
                "rows": watch.rows[query.id],
                "lag": watch.lag(query.id),
                "checkpoint": str(places[query.id]) if places[query.id] else None,
            }
            for query in queries
        ]
        if options.output == "json":
            show(rows, "json", _SUMMARY)
        elif progress.is_watched or stop.signal is not None:
            for row in rows:
                lag = "" if row["lag"] is None else f", lag {row['lag']:,}"
                batches = f"{row['batches']:,} batch{'' if row['batches'] == 1 else 'es'}"
                remark(f"{row['query']}: {batches}, {row['rows']:,} row{'' if row['rows'] == 1 else 's'}{lag}")
    return stop.exit_code


@contextmanager
def _clear_errors(path: Path, with_traceback: bool, progress: Progress) -> Iterator[None]:
    """Whatever fails, in one sentence; mistakes in the file with their line."""
    from pyspark_braidlog.errors import clear_error

    try:
        yield
    except BraidlogError:
        progress.clear()
        raise
    except Exception as problem:
        progress.clear()
        if with_traceback:
            traceback.print_exc()
        raise UserError(f"{_place(problem, path)}{clear_error(problem)}") from problem


def _place(problem: BaseException, path: Path) -> str:
    """Where in the file, if it happened there."""
    if isinstance(problem, SyntaxError):
        return f"{problem.filename}, line {problem.lineno}: "
    name = str(path.resolve())
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(problem.__traceback__)
        if str(Path(frame.filename).resolve()) == name
    ]
    return f"{path}, line {lines[-1]}: " if lines else ""
