"""Kafka's own kafka-producer-perf-test against both brokers, with the Java producer's default settings."""

from __future__ import annotations

import re

from tools.peers.kafka import PERFORMANCE_JVM, run_tool

from bench.brokers import topic
from bench.measures import Better
from bench.session import LARGE_PARTITIONS, Session

TARGET = 1.0
ROUNDS = 3
# Record size, records in a full and in a quick run (which takes the first size only).
SIZES = (("1 KiB", 1024, 500_000, 100_000), ("100 B", 100, 2_000_000, 500_000))
SUMMARY = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec .*?, [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th"
)


class PerfTestFailed(Exception):
    """The tool ended badly or printed no summary."""


def measure(session: Session) -> None:
    rounds = min(session.plan.rounds, session.plan.scaled(ROUNDS, 1))
    for size_name, size, full, quick in SIZES[: session.plan.scaled(2, 1)]:
        count = session.plan.scaled(full, quick)
        for number, broker in session.interleaved(f"kafka-producer-perf-test, {size_name}", rounds):
            with topic(broker, f"perf-{size}-{number}", LARGE_PARTITIONS) as name:
                rate = _run(broker.port, name, count, size)
            title = f"{size_name} records, the Java producer's defaults"
            session.add(broker, "perftest", title, rate * size / 1e6, "MB/s", Better.HIGHER, TARGET)


def _run(port: int, name: str, count: int, size: int) -> float:
    arguments = [
        "--topic",
        name,
        "--num-records",
        str(count),
        "--record-size",
        str(size),
        "--throughput",
        "-1",
    ]
    arguments += ["--producer-props", f"bootstrap.servers=127.0.0.1:{port}"]
    done = run_tool("kafka-producer-perf-test", arguments, jvm=PERFORMANCE_JVM)
    summaries = list(SUMMARY.finditer(done.stdout))
    if done.returncode != 0 or not summaries:
        raise PerfTestFailed(f"kafka-producer-perf-test: {(done.stderr or done.stdout).strip()[-400:]}")
    if int(summaries[-1]["records"]) != count:
        raise PerfTestFailed(f"only {summaries[-1]['records']} of {count} records were sent")
    return float(summaries[-1]["rate"])
