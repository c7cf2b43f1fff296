"""`python -m bench.cli`: `braidlog produce` and `consume` next to kcat on one broker, start-up included.

Every measurement is a process of its own, from its start to its end; within a round the programs take turns, so that
whatever disturbs the machine disturbs neighbours alike. What was written is counted at the broker, what was printed
in the file that it was printed to.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import machine
from bench.brokers import Braidlog, topic
from bench.measures import Verdict
from bench.progress import Progress
from bench.report import MISSING, fill, number
from bench.requests import Requester

RESULTS = Path(__file__).parent / "results"
BRAIDLOG, KCAT = "braidlog", "kcat"
PROGRAMS = (BRAIDLOG, KCAT)
PARTITIONS = 4
RECORDS, QUICK_RECORDS = 1_000_000, 100_000
KEYS = 50_000
TIMEOUT_S = 300.0
TARGET = 1.0
PRODUCE, CONSUME = "produce", "consume"


class MeasurementFailed(Exception):
    """A program ended badly, or did not do what it was asked to."""


@dataclass(slots=True)
class Row:
    name: str
    action: str
    # What each program is told beside the broker and the topic.
    words: dict[str, list[str]]
    input: str = "lines"
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, program: str, seconds: float, cpu_seconds: float) -> None:
        self.seconds.setdefault(program, []).append(seconds)
        self.cpu_seconds.setdefault(program, []).append(cpu_seconds)

    def speeds(self) -> list[float]:
        """How much faster than its neighbour of the same round braidlog was, round by round."""
        pairs = zip(self.seconds.get(BRAIDLOG, []), self.seconds.get(KCAT, []), strict=False)
        return [theirs / ours for ours, theirs in pairs]

    def verdict(self) -> Verdict:
        speeds = self.speeds()
        if not speeds:
            return Verdict.NOT_MEASURED
        return Verdict.REACHED if statistics.median(speeds) >= TARGET else Verdict.NOT_REACHED


def all_rows() -> list[Row]:
    kcat_read = ["-C", "-o", "beginning", "-e", "-q"]
    read = ["--offset", "earliest", "--exit-at-end"]
    return [
        Row("produce lines", PRODUCE, {BRAIDLOG: [], KCAT: ["-P"]}),
        Row("produce with keys", PRODUCE, {BRAIDLOG: ["--key-separator", ":"], KCAT: ["-P", "-K:"]}, "keyed"),
        Row("consume values", CONSUME, {BRAIDLOG: read, KCAT: kcat_read}),
        Row("consume as JSON", CONSUME, {BRAIDLOG: [*read, "--output", "json"], KCAT: [*kcat_read, "-J"]}),
        Row(
            "consume with a format",
            CONSUME,
            {BRAIDLOG: [*read, "--format", "%p %o %t %k=%v"], KCAT: [*kcat_read, "-f", "%p %o %T %k=%s\\n"]},
        ),
    ]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cli", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute; figures show direction only")
    parser.add_argument("--rounds", type=int, help="rounds per row (default 7, quick 2)")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="where the broker's data goes")
    parser.add_argument("--json", type=Path, help="write the result here instead of bench/results/")
    parser.add_argument("--into", type=Path, help="fill the marked parts of this document")
    return parser.parse_args(arguments)


class Run:
    """One broker, the inputs, and the measurements."""

    def __init__(self, broker: Braidlog, work: Path, records: int) -> None:
        self.broker = broker
        self.records = records
        self.failures: list[str] = []
        self._work = work
        self._serial = 0
        self._filled: str | None = None
        # As installed: modules are compiled to bytecode once, not at every start.
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for name, with_keys in (("lines", False), ("keyed", True)):
            with (work / name).open("wb") as file:
                file.writelines(_lines(records, with_keys))

    def measure(self, row: Row, program: str) -> None:
        try:
            if row.action == PRODUCE:
                seconds, cpu = self._produce(row, program)
            else:
                seconds, cpu = self._consume(row, program)
        except (MeasurementFailed, subprocess.TimeoutExpired) as problem:
            self.failures.append(f"{program}, {row.name}: {problem}")
            return
        row.add(program, seconds, cpu)

    def _produce(self, row: Row, program: str) -> tuple[float, float]:
        self._serial += 1
        with topic(self.broker, f"produce-{self._serial}", PARTITIONS) as name:
            took = self._timed(self._command(row, program, name), self._work / row.input, Path(os.devnull))
            there = self._records_in(name)
            if there != self.records:
                raise MeasurementFailed(f"{self.records} records were to be sent, the broker has {there}")
        return took

    def _consume(self, row: Row, program: str) -> tuple[float, float]:
        out = self._work / "printed"
        took = self._timed(self._command(row, program, self._filled_topic()), Path(os.devnull), out)
        with out.open("rb") as printed:
            lines = sum(block.count(b"\n") for block in iter(lambda: printed.read(1 << 20), b""))
        out.unlink()
        if lines != self.records:
            raise MeasurementFailed(f"{lines} of {self.records} records were printed")
        return took

    def _filled_topic(self) -> str:
        """With keys, written by kcat with its defaults; filled once and read by both."""
        if self._filled is None:
            self._filled = "consume"
            with Requester(self.broker.port) as requester:
                requester.create_topic(self._filled, PARTITIONS)
            fill_with = Row("", PRODUCE, {KCAT: ["-P", "-K:"]})
            self._timed(self._command(fill_with, KCAT, self._filled), self._work / "keyed", Path(os.devnull))
        return self._filled

    def _command(self, row: Row, program: str, name: str) -> list[str]:
        bootstrap = f"127.0.0.1:{self.broker.port}"
        if program == KCAT:
            return ["kcat", "-b", bootstrap, "-t", name, *row.words[KCAT]]
        return [sys.executable, "-m", "braidlog", row.action, name, "--bootstrap", bootstrap, *row.words[BRAIDLOG]]

    def _timed(self, command: list[str], source: Path, target: Path) -> tuple[float, float]:
        with source.open("rb") as stdin, target.open("wb") as stdout, tempfile.TemporaryFile() as stderr:
            began = time.perf_counter()
            child = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=self._environment)
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.perf_counter() - began
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                stderr.seek(0)
                error_lines = stderr.read().decode(errors="replace").strip().splitlines()
                raise MeasurementFailed(error_lines[-1] if error_lines else f"ended with {child.returncode}")
        return seconds, usage.ru_utime + usage.ru_stime

    def _records_in(self, name: str) -> int:
        from braidlog.client.admin import Admin, OffsetSpec
        from braidlog.core.types import TopicPartition

        with Admin(bootstrap_servers=f"127.0.0.1:{self.broker.port}") as admin:
            ends = admin.list_offsets({TopicPartition(name, each): OffsetSpec.LATEST for each in range(PARTITIONS)})
            return sum(end.offset for end in ends.values())


def _lines(records: int, with_keys: bool) -> Iterator[bytes]:
    """Log-like text of about 60 bytes."""
    for at in range(records):
        line = b"line %07d of a log that somebody wants elsewhere %09d\n" % (at, at * 7919 % 1_000_000_007)
        yield b"key-%d:%s" % (at % KEYS, line) if with_keys else line


# Tables


def table(rows: list[Row]) -> list[list[str]]:
    lines = [["", "braidlog, s (min–max)", "kcat, s (min–max)", "speed (min–max)", "CPU s", "kcat's", "target", ""]]
    for row in rows:
        speeds = row.speeds()
        lines.append(
            [
                row.name,
                *(_ranged(row.seconds.get(program, [])) for program in PROGRAMS),
                _ranged(speeds, "×"),
                *(number(min(row.cpu_seconds[each])) if each in row.cpu_seconds else MISSING for each in PROGRAMS),
                f"≥ {TARGET}×",
                row.verdict().value,
            ]
        )
    return lines


def _ranged(values: list[float], unit: str = "") -> str:
    if not values:
        return MISSING
    middle = f"{statistics.median(values):.2f}{unit}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f}{unit}–{max(values):.2f}{unit})"


def markdown(rows: list[Row]) -> str:
    head, *lines = table(rows)
    made = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 2) + "---|", *made])


def conditions(result: dict[str, Any]) -> str:
    facts = {**result["machine"], **result["settings"]}
    return "\n".join(f"- {key}: {value}" for key, value in facts.items())


def result_of(rows: list[Row], run: Run, rounds: int, seconds: float, load: str) -> dict[str, Any]:
    compiled = any((Path(__file__).parents[1] / "src" / "braidlog").rglob("*.so"))
    today = time.strftime("%Y-%m-%d", time.gmtime())
    error_lines = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    version = next((line for line in error_lines.splitlines() if "librdkafka" in line), "unknown")
    return {
        "format": 1,
        "kind": "cli",
        "date": today,
        "machine": machine.describe(run.broker.data),
        "settings": {
            "run": f"{run.records:,} records, {rounds} rounds, {seconds / 60:.0f} minutes, {today}",
            "braidlog": "compiled" if compiled and not os.environ.get("BRAIDLOG_PURE") else "pure Python",
            "kcat": version,
            "load average before and after": load,
        },
        "failures": run.failures,
        "rows": [
            {"name": row.name, "seconds": row.seconds, "cpu_seconds": row.cpu_seconds} for row in rows if row.seconds
        ],
    }


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main() -> None:
    options = parse()
    if shutil.which("kcat") is None:
        sys.exit("bench: there is no kcat to compare with: `apt-get install kcat`, `brew install kcat`")
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _leave)
    rounds = options.rounds or (2 if options.quick else 7)
    rows = all_rows()
    work = Path(tempfile.mkdtemp(prefix="braidlog-bench-", dir=options.work))
    progress = Progress()
    broker = Braidlog(work / "data")
    began, load = time.monotonic(), _load()
    try:
        progress.show("starting the broker")
        broker.start()
        run = Run(broker, work, QUICK_RECORDS if options.quick else RECORDS)
        for turn in range(rounds):
            for row in rows:
                # Whoever comes second finds the broker warm: they take turns in that, too.
                for program in PROGRAMS if turn % 2 == 0 else reversed(PROGRAMS):
                    progress.show(f"round {turn + 1} of {rounds}: {row.name}: {program}")
                    run.measure(row, program)
        result = result_of(rows, run, rounds, time.monotonic() - began, f"{load}, {_load()}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
    finally:
        progress.clear()
        broker.kill()
        shutil.rmtree(work, ignore_errors=True)
    target = options.json or RESULTS / f"cli-{time.strftime('%Y%m%d-%H%M%S')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(rows))
    if options.into:
        parts = {"conditions": conditions(result), "table": markdown(rows)}
        options.into.write_text(fill(options.into.read_text(), parts, of="cli"))
    for failure in run.failures:
        print(f"failed: {failure}", file=sys.stderr)
    if run.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
