"""`python -m bench.client.send_latency`: how long a record takes that its program waits for, beside confluent-kafka.

Every measurement is a process of its own and the ways take turns within a round, all on one broker, one partition,
acks=all, idempotence on, no lingering.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.brokers import Braidlog, topic
from bench.measures import Better, Measure
from bench.progress import Progress
from bench.report import fill

SIZE: Final = 100
WARM_RECORDS: Final = 200
TIMEOUT_S: Final = 300.0

OURS: Final = "braidlog, `send().result()`"
OURS_FLUSH: Final = "braidlog, `send()`, `flush()`"
THEIRS_FLUSH: Final = "confluent-kafka, `produce()`, `flush()`"
THEIRS_POLL: Final = "confluent-kafka, `produce()`, `poll()` until delivered"

Send = Callable[[], object]


def ours(bootstrap: str, name: str, *, flush: bool) -> Send:
    from braidlog import Producer

    producer = Producer(bootstrap_servers=bootstrap)
    payload = bytes(SIZE)

    def one() -> None:
        producer.send(name, payload, partition=0).result()

    def flushed() -> None:
        producer.send(name, payload, partition=0)
        producer.flush()

    return flushed if flush else one


def theirs(bootstrap: str, name: str, *, flush: bool) -> Send:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    payload = bytes(SIZE)
    reports: list[object] = []

    def polled() -> None:
        reports.clear()
        producer.produce(name, payload, partition=0, on_delivery=lambda error, message: reports.append(message))
        while not reports:
            producer.poll(1)

    def flushed() -> None:
        producer.produce(name, payload, partition=0)
        producer.flush()

    return flushed if flush else polled


WAYS: Final[dict[str, Callable[[str, str], Send]]] = {
    OURS: lambda bootstrap, name: ours(bootstrap, name, flush=False),
    OURS_FLUSH: lambda bootstrap, name: ours(bootstrap, name, flush=True),
    THEIRS_FLUSH: lambda bootstrap, name: theirs(bootstrap, name, flush=True),
    THEIRS_POLL: lambda bootstrap, name: theirs(bootstrap, name, flush=False),
}


def work(way: str, bootstrap: str, name: str, count: int) -> dict[str, float]:
    """In a process of its own: microseconds."""
    one = WAYS[way](bootstrap, name)
    for _ in range(WARM_RECORDS):
        one()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        one()
        times.append(time.perf_counter() - began)
    times.sort()
    return {f"p{part}": times[count * part // 100] * 1e6 for part in (10, 50, 90)}


def measure(way: str, bootstrap: str, name: str, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.client.send_latency", "--worker", json.dumps([way, bootstrap, name, count])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(found: dict[str, dict[str, Measure]]) -> str:
    headings = ["", "p10", "p50 (min–max of rounds)", "p90", "p50 / the faster of confluent-kafka's"]
    lines = ["| " + " | ".join(headings) + " |", "|---|---:|---:|---:|---:|"]
    rounds = zip(*(found["p50"].values[way] for way in (THEIRS_FLUSH, THEIRS_POLL)), strict=True)
    best = [min(pair) for pair in rounds]
    for way in WAYS:
        values = found["p50"].values[way]
        # Round by round: what disturbs one disturbs its neighbour.
        ratio = statistics.median(ours / theirs for ours, theirs in zip(values, best, strict=True))
        cells = [way, f"{found['p10'].median(way):.0f}"]
        cells.append(f"{found['p50'].median(way):.0f} ({min(values):.0f}–{max(values):.0f})")
        cells += [f"{found['p90'].median(way):.0f}", f"{ratio:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.client.send_latency", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--count", type=int, default=3_000, help="records a measurement")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="where the broker's data goes")
    parser.add_argument("--into", type=Path, help="fill the part of this document that is marked waiting:latency")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(*json.loads(options.worker))), flush=True)
        return
    found = {part: Measure("waiting", part, "µs", Better.LOWER) for part in ("p10", "p50", "p90")}
    place = Path(tempfile.mkdtemp(prefix="braidlog-bench-", dir=options.work))
    broker = Braidlog(place / "data")
    progress = Progress()
    try:
        broker.start()
        with topic(broker, "waiting", 1) as name:
            for turn in range(options.rounds):
                for way in WAYS:
                    progress.show(f"round {turn + 1} of {options.rounds}: {way}")
                    for part, value in measure(way, f"127.0.0.1:{broker.port}", name, options.count).items():
                        found[part].add(way, value)
    finally:
        progress.clear()
        broker.kill()
        shutil.rmtree(place, ignore_errors=True)
    text = table(found)
    print(text)
    if options.into:
        options.into.write_text(fill(options.into.read_text(), {"latency": text}, of="waiting"))


if __name__ == "__main__":
    main()
