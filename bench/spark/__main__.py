"""`python -m bench.spark`: braidlog's Spark source and sink next to Spark's own Kafka connector.

Both run in one Spark session on one broker over the same data, and take turns within a round, so that whatever
disturbs the machine disturbs neighbours alike. A round that is not counted goes first: Java compiles while it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.peers.maven import PeerMissing
from tools.peers.spark_kafka import Connector, spark_kafka_connector

from bench import machine
from bench.brokers import Braidlog
from bench.measures import Verdict
from bench.progress import Progress
from bench.spark.report import terminal, verdicts
from bench.spark.rows import ACTIONS, CODECS, JVM, SIZES, Row, all_rows
from bench.spark.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parents[1] / "results"
CORES = 2
NO_CONNECTOR = "none"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes; figures show direction only")
    parser.add_argument("--rounds", type=int, help="rounds per row that count (default 3, quick 2)")
    parser.add_argument("--only", default=",".join(ACTIONS), help="comma-separated, of: %(default)s")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="value sizes in bytes; default %(default)s")
    parser.add_argument("--codecs", default=",".join(CODECS), help="comma-separated; default %(default)s")
    parser.add_argument("--peer", choices=("connector", NO_CONNECTOR), default="connector", help="default %(default)s")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of the session")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="where data and checkpoints go")
    parser.add_argument("--json", type=Path, help="write the result here instead of bench/results/")
    options = parser.parse_args(arguments)
    options.only = [word for word in options.only.split(",") if word]
    unknown = [word for word in options.only if word not in ACTIONS]
    if unknown:
        parser.error(f"--only: no such {', '.join(unknown)}; there are {', '.join(ACTIONS)}")
    options.sizes = [int(word) for word in options.sizes.split(",")]
    if set(options.sizes) - set(SIZES):
        parser.error(f"--sizes: there are {', '.join(map(str, SIZES))}")
    options.codecs = options.codecs.split(",")
    if any("=" not in setting for setting in options.conf):
        parser.error("--conf: write it as KEY=VALUE")
    return options


def is_compiled() -> bool:
    built = any((Path(__file__).parents[2] / "src" / "braidlog").rglob("*.so"))
    return built and not os.environ.get("BRAIDLOG_PURE")


def start_session(work: Path, connector: Connector | None, conf: list[str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.master": f"local[{CORES}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "local"),
        "spark.log.level": "ERROR",
        **({"spark.jars": connector.conf} if connector is not None else {}),
        **dict(setting.split("=", 1) for setting in conf),
    }
    builder = SparkSession.builder.appName("braidlog benchmark")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def rounds_of(rows: list[Row], trial: Trial, rounds: int, with_connector: bool, progress: Progress) -> None:
    for turn in range(rounds + 1):
        for row in rows:
            # Whoever goes first now goes last in the next round.
            order = row.contestants if turn % 2 == 0 else row.contestants[::-1]
            for who in order:
                if who == JVM and not with_connector:
                    continue
                stage = f"round {turn} of {rounds}" if turn else "warming up"
                progress.show(f"{stage}: {row.action}, {row.name}: {who}")
                value = trial.measure(row, who)
                if turn and value is not None:
                    row.measure.add(who, value)


def result_of(
    rows: list[Row], trial: Trial, connector: Connector | None, options: argparse.Namespace, rounds: int, seconds: float
) -> dict[str, Any]:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    notes = [f"load of the machine over the last 15 minutes of the run: {os.getloadavg()[2]:.1f}"]
    if connector is not None and not connector.is_of_this_spark:
        notes.append(f"Maven Central had no connector of Spark {connector.spark}: {connector.version} stood in for it")
    return {
        "format": 1,
        "kind": "spark",
        "date": today,
        "machine": machine.describe(options.work),
        "settings": {
            "run": f"{'quick' if options.quick else 'full'}, {rounds} rounds, {seconds / 60:.0f} minutes, {today}",
            "braidlog": "compiled" if is_compiled() else "pure Python",
            "Spark": f"{version('pyspark')}, local[{CORES}], broker on the same cores",
            "Spark's connector": connector.title if connector is not None else "not measured",
            "pyarrow": version("pyarrow"),
            "settings": "each one's defaults" + (f"; session: {', '.join(options.conf)}" if options.conf else ""),
        },
        "notes": notes,
        "failures": trial.failures,
        "rows": [row.as_json() for row in rows if row.measure.values],
    }


def find_connector(options: argparse.Namespace) -> Connector | None:
    if options.peer == NO_CONNECTOR:
        return None
    try:
        return spark_kafka_connector()
    except PeerMissing as missing:
        print(f"braidlog alone, without Spark's connector: {missing}", file=sys.stderr)
        return None


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main() -> None:
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    if not is_compiled():
        print("braidlog is not compiled: figures are far below what `make bench-spark` shows", file=sys.stderr)
    rounds = options.rounds or (2 if options.quick else 3)
    rows = all_rows(options.only, options.sizes, options.codecs)
    connector = find_connector(options)
    work = Path(tempfile.mkdtemp(prefix="braidlog-bench-spark-", dir=options.work))
    progress = Progress()
    broker = Braidlog(work / "data")
    spark: SparkSession | None = None
    began = time.monotonic()
    try:
        progress.show("starting the broker and Spark")
        broker.start()
        spark = start_session(work, connector, options.conf)
        trial = Trial(spark, broker, work, options.quick)
        progress.show("filling topics")
        trial.prepare(rows)
        rounds_of(rows, trial, rounds, connector is not None, progress)
        result = result_of(rows, trial, connector, options, rounds, time.monotonic() - began)
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
    finally:
        progress.clear()
        if spark is not None:
            spark.stop()
        broker.kill()
        shutil.rmtree(work, ignore_errors=True)
    target = options.json or RESULTS / f"spark-{time.strftime('%Y%m%d-%H%M%S')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(terminal(rows))
    lines = verdicts(rows)
    print(
        f"\ntargets: {lines.count(Verdict.REACHED)} reached, {lines.count(Verdict.NOT_REACHED)} not reached; {target}"
    )
    for failure in trial.failures:
        print(f"failed: {failure}", file=sys.stderr)
    if trial.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
