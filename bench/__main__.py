"""`python -m bench`: braidlog next to Apache Kafka 3.9.1, or to another checkout of braidlog, in interleaved rounds."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.peers.kafka import BROKER_JVM, kafka_home

from bench import machine, programs, report
from bench.measures import BEFORE, BRAIDLOG, KAFKA, Verdict
from bench.scenarios import (
    cluster,
    coordinators,
    fairness,
    groups,
    idle_connections,
    large_cluster,
    latency,
    lifetime,
    perftest,
    protection,
    quotas,
    replication,
    replication_costs,
    scale,
    security,
    small_requests,
    throughput,
    transactions,
    workers,
)
from bench.session import Plan, Session

RESULTS = Path(__file__).parent / "results"
THROUGHPUT = ("produce", "consume", "cpu")
# In this order: what starts its own brokers comes before the pair that stays up.
SCENARIOS: dict[str, Callable[[Session], None]] = {
    "startup": lifetime.measure_startup,
    "memory": lifetime.measure_memory,
    "scale": scale.measure,
    "groups": groups.measure,
    "security": security.measure,
    "protection": protection.measure,
    "idle_connections": idle_connections.measure,
    "fairness": fairness.measure,
    "cluster": cluster.measure,
    "large_cluster": large_cluster.measure,
    "coordinators": coordinators.measure,
    "replication_costs": replication_costs.measure,
    "replication": replication.measure,
    "workers": workers.measure,
    "tiny": small_requests.measure_tiny,
    "fsync": small_requests.measure_fsync,
    "latency": latency.measure,
    "transactions": transactions.measure,
    "perftest": perftest.measure,
    "cold": latency.measure_cold,
    "quotas": quotas.measure,
}
ALL = (*list(SCENARIOS)[:14], *THROUGHPUT, *list(SCENARIOS)[14:])
# Fairness takes as long as all the others together; a cluster needs six brokers and a ZooKeeper at a time of its own,
# security, protection and idle connections brokers with other listeners, workers several processes, quotas waits for
# its windows.
CLUSTERS = ("cluster", "large_cluster", "coordinators", "replication_costs", "replication")
ASKED_FOR = ("security", "protection", "idle_connections", "fairness", "quotas", "workers", *CLUSTERS)
DEFAULT = tuple(name for name in ALL if name not in ASKED_FOR)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes; figures show direction only")
    parser.add_argument(
        "--only",
        default=",".join(DEFAULT),
        help=f"comma-separated, of {', '.join(ALL)} (default: all but {', '.join(ASKED_FOR)})",
    )
    parser.add_argument("--rounds", type=int, help="rounds per row (default 5, quick 2)")
    parser.add_argument(
        "--peer",
        choices=("kafka", "none", "only"),
        default="kafka",
        help="measure beside Kafka, braidlog alone, or only the peer (a baseline)",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="measure beside the braidlog of another checkout instead of Kafka: before and after a change",
    )
    parser.add_argument("--cold-gb", type=float, help="what the cold reader reads (default 10, quick 1)")
    parser.add_argument(
        "--scale-peer-partitions",
        type=int,
        help="most partitions that Kafka is measured with (default 1000, quick 0)",
    )
    parser.add_argument(
        "--attacks", default="", help="comma-separated names of the attacks that fairness measures (default: all)"
    )
    parser.add_argument("--work", type=Path, default=Path("/var/tmp"), help="where the brokers' data goes")
    parser.add_argument("--json", type=Path, help="write the result here instead of bench/results/")
    options = parser.parse_args(arguments)
    options.only = [name for name in options.only.split(",") if name]
    options.attacks = [name for name in options.attacks.split(",") if name]
    unknown = [name for name in options.attacks if name not in fairness.ATTACKS]
    if unknown:
        parser.error(f"no such attack: {', '.join(unknown)}; there are {', '.join(fairness.ATTACKS)}")
    unknown = [name for name in options.only if name not in ALL]
    if unknown:
        parser.error(f"no such selection: {', '.join(unknown)}; there are {', '.join(ALL)}")
    return options


def broker_names(peer: str, against: Path | None) -> list[str]:
    if against is not None:
        sources = against / "src" / "braidlog"
        if not sources.is_dir():
            sys.exit(f"bench: {against} is not a checkout of braidlog: there is no {sources}")
        if not any(sources.rglob("*.so")):
            sys.exit(f"bench: {against} is not compiled: run `python -m tools.build` there first")
        return [BRAIDLOG, BEFORE]
    if peer == "none":
        return [BRAIDLOG]
    home, reason = kafka_home()
    if home is None:
        sys.exit(f"bench: no Apache Kafka to compare with: {reason} (or run with --peer none)")
    return [KAFKA] if peer == "only" else [BRAIDLOG, KAFKA]


def measure_all(session: Session, only: list[str]) -> list[str]:
    """Run what was asked for; a scenario that fails is named, and the others still run."""
    failures: list[str] = []

    def attempt(groups: list[str], run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as problem:
            failures.append(f"{', '.join(groups)}: {type(problem).__name__}: {problem}")
        session.progress.clear()
        for group in groups:
            rows = session.measures.group(group)
            if rows:
                print(f"\n{report.text(group, rows)}", flush=True)

    for name in ALL:
        if name in SCENARIOS and name in only:
            attempt([name], lambda name=name: SCENARIOS[name](session))  # type: ignore[misc]
        elif name == THROUGHPUT[0] and set(only) & set(THROUGHPUT):
            groups = [group for group in THROUGHPUT if group in only]
            attempt(groups, lambda groups=groups: throughput.measure(session, frozenset(groups)))  # type: ignore[misc]
    return failures


def result_of(session: Session, failures: list[str], seconds: float) -> dict[str, Any]:
    plan = session.plan
    compiled = any((Path(__file__).parents[1] / "src" / "braidlog").rglob("*.so"))
    peer: dict[str, str] = {}
    if KAFKA in session.names:
        mode = f"KRaft combined mode (ZooKeeper mode in {' and '.join(CLUSTERS)})"
        peer = {"Kafka": f"3.9.1, {mode}, {' '.join(BROKER_JVM[:4])}"}
    elif plan.checkout is not None:
        peer = {"before": f"{machine.commit(plan.checkout)}, compiled"}
    return {
        "format": 1,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine.describe(session.work),
        "settings": {
            "run": f"{'quick' if plan.quick else 'full'}, {plan.rounds} rounds, {seconds / 60:.0f} minutes, "
            f"{time.strftime('%Y-%m-%d', time.gmtime())}",
            "braidlog": "compiled" if compiled and not os.environ.get("BRAIDLOG_PURE") else "pure Python",
            **peer,
            "acks": "all (one replica, but three where replication is measured)",
            "cold reader": f"{plan.cold_bytes / 1e9:.0f} GB",
        },
        "notes": session.notes,
        "failures": failures,
        "measures": [row.as_json() for row in session.measures.rows()],
    }


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main() -> None:
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    names = broker_names(options.peer, options.against)
    try:
        programs.build()
    except programs.ProgramFailed as problem:
        sys.exit(f"bench: {problem}")
    plan = Plan(
        rounds=options.rounds or (2 if options.quick else 5),
        quick=options.quick,
        cold_bytes=round((options.cold_gb or (1 if options.quick else 10)) * 1e9),
        scale_peer_partitions=options.scale_peer_partitions or (0 if options.quick else 1000),
        attacks=options.attacks,
        checkout=options.against,
    )
    began = time.monotonic()
    session = Session(plan, names, Path(tempfile.mkdtemp(prefix="braidlog-bench-", dir=options.work)))
    if machine.filesystem_type(session.work) == "tmpfs":
        session.notes.append("the data was on tmpfs: figures with fsync and cold reads mean nothing")
    try:
        failures = measure_all(session, options.only)
        result = result_of(session, failures, time.monotonic() - began)
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
    finally:
        session.progress.clear()
        session.close()
    target = options.json or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    verdicts = [row.verdict() for row in session.measures.rows()]
    print(
        f"\ntargets: {verdicts.count(Verdict.REACHED)} reached, {verdicts.count(Verdict.NOT_REACHED)} not reached; "
        f"{target}"
    )
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
