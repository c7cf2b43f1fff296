"""`python -m bench.client`: braidlog's client next to confluent-kafka, kafka-python and aiokafka on one broker.

Every measurement is a process of its own; the clients take turns within a round, so that whatever disturbs the
machine disturbs neighbours alike.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import machine
from bench.brokers import Braidlog, topic
from bench.client.report import terminal, verdicts
from bench.client.rows import ARROW, CLIENTS, CONFLUENT, CONSUME, PRODUCE, SIZES, Row, all_rows
from bench.client.task import BATCH, CALL, ONE, SHARED, Task
from bench.measures import Verdict
from bench.progress import Progress
from bench.requests import Requester

RESULTS = Path(__file__).parents[1] / "results"
PARTITIONS = 4
TIMEOUT_S = 180.0


class MeasurementFailed(Exception):
    """A client's process ended badly, or the broker does not have what it was sent."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute or two; figures show direction only")
    parser.add_argument("--rounds", type=int, help="rounds per row (default 5, quick 2)")
    parser.add_argument("--clients", default=",".join((*CLIENTS, ARROW)), help="comma-separated; default %(default)s")
    parser.add_argument("--actions", default=f"{PRODUCE},{CONSUME}", help="comma-separated; default %(default)s")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="record sizes in bytes; default %(default)s")
    parser.add_argument("--modes", default=f"{ONE},{CALL},{BATCH},{ARROW}", help="comma-separated; default %(default)s")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="where the broker's data goes")
    parser.add_argument("--json", type=Path, help="write the result here instead of bench/results/")
    options = parser.parse_args(arguments)
    choices = {"clients": (*CLIENTS, ARROW), "actions": (PRODUCE, CONSUME), "modes": (ONE, CALL, BATCH, ARROW)}
    for name, known in choices.items():
        chosen = [word for word in getattr(options, name).split(",") if word]
        unknown = [word for word in chosen if word not in known]
        if unknown:
            parser.error(f"--{name}: no such {', '.join(unknown)}; there are {', '.join(known)}")
        setattr(options, name, chosen)
    options.sizes = [int(word) for word in options.sizes.split(",")]
    return options


class Run:
    """One broker, and the measurements on it."""

    def __init__(self, broker: Braidlog, quick: bool) -> None:
        self.broker = broker
        self.quick = quick
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self.failures: list[str] = []
        self._serial = 0
        # By size: a topic that is filled once and read by everybody.
        self._filled: dict[int, str] = {}

    def measure(self, row: Row, client: str) -> None:
        count = row.count(client, self.quick)
        try:
            if row.action == PRODUCE:
                result = self._produce(row, client, count)
            else:
                # What is read before the clock starts is not counted: leave some to read.
                result = self._work(row, client, self._filled_topic(row.size), count * 9 // 10)
        except MeasurementFailed as problem:
            self.failures.append(f"{client}, {row.action}, {row.name}: {problem}")
            return
        row.add(client, result["seconds"], result["cpu_seconds"], int(result["records"]))

    def _produce(self, row: Row, client: str, count: int) -> dict[str, float]:
        self._serial += 1
        with topic(self.broker, f"produce-{self._serial}", PARTITIONS) as name:
            result = self._work(row, client, name, count)
            there = self._records_in(name)
            if there < count:
                raise MeasurementFailed(f"{count} records were sent, the broker has {there}")
        return result

    def _filled_topic(self, size: int) -> str:
        name = self._filled.get(size)
        if name is None:
            name = self._filled[size] = f"consume-{size}"
            rows = [row for row in all_rows((size,)) if row.action == CONSUME]
            count = max(row.count(client, self.quick) for row in rows for client in row.clients)
            with Requester(self.broker.port) as requester:
                requester.create_topic(name, PARTITIONS)
            self._work(Row(PRODUCE, ONE, size), CONFLUENT, name, count + 50_000)
        return name

    def _records_in(self, name: str) -> int:
        from braidlog.client.admin import Admin, OffsetSpec
        from braidlog.core.types import TopicPartition

        with Admin(bootstrap_servers=self.bootstrap) as admin:
            ends = admin.list_offsets({TopicPartition(name, each): OffsetSpec.LATEST for each in range(PARTITIONS)})
            return sum(end.offset for end in ends.values())

    def _work(self, row: Row, client: str, name: str, count: int) -> dict[str, float]:
        task = Task(client, row.action, row.mode, self.bootstrap, name, PARTITIONS, row.size, count)
        command = [sys.executable, "-m", "bench.client.worker", json.dumps(task._asdict())]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as problem:
            raise MeasurementFailed(f"not done after {TIMEOUT_S:.0f} s") from problem
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
            raise MeasurementFailed(lines[-1])
        result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return result


def result_of(rows: list[Row], run: Run, options: argparse.Namespace, rounds: int, seconds: float) -> dict[str, Any]:
    compiled = any((Path(__file__).parents[2] / "src" / "braidlog").rglob("*.so"))
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return {
        "format": 1,
        "kind": "client",
        "date": today,
        "machine": machine.describe(run.broker.data),
        "settings": {
            "run": f"{'quick' if options.quick else 'full'}, {rounds} rounds, {seconds / 60:.0f} minutes, {today}",
            "braidlog": "compiled" if compiled and not os.environ.get("BRAIDLOG_PURE") else "pure Python",
            "others": ", ".join(f"{name} {version(name)}" for name in ("confluent-kafka", "kafka-python", "aiokafka")),
            **SHARED,
        },
        "notes": [],
        "failures": run.failures,
        "rows": [row.as_json() for row in rows if row.rates.values],
    }


def has_driver(client: str) -> bool:
    return find_spec(f"bench.client.drivers.{client}") is not None


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main() -> None:
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    rounds = options.rounds or (2 if options.quick else 5)
    work = Path(tempfile.mkdtemp(prefix="braidlog-bench-", dir=options.work))
    rows = [
        row for row in all_rows(tuple(options.sizes)) if row.action in options.actions and row.mode in options.modes
    ]
    progress = Progress()
    broker = Braidlog(work / "data")
    began = time.monotonic()
    try:
        progress.show("starting the broker")
        broker.start()
        run = Run(broker, options.quick)
        for turn in range(rounds):
            for row in rows:
                for client in row.clients:
                    if client in options.clients and has_driver(client):
                        progress.show(f"round {turn + 1} of {rounds}: {row.action}, {row.name}: {client}")
                        run.measure(row, client)
        result = result_of(rows, run, options, rounds, time.monotonic() - began)
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
    finally:
        progress.clear()
        broker.kill()
        shutil.rmtree(work, ignore_errors=True)
    target = options.json or RESULTS / f"client-{time.strftime('%Y%m%d-%H%M%S')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(terminal(rows))
    lines = verdicts(rows)
    print(
        f"\ntargets: {lines.count(Verdict.REACHED)} reached, {lines.count(Verdict.NOT_REACHED)} not reached; {target}"
    )
    for failure in run.failures:
        print(f"failed: {failure}", file=sys.stderr)
    if run.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
