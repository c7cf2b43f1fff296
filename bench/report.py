"""Results as tables: for a terminal and for docs/BENCHMARKS.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from bench.measures import BEFORE, BRAIDLOG, KAFKA, Better, Measure, Verdict, geometric_mean

TITLES = {
    "produce": "Produce",
    "consume": "Consume",
    "perftest": "kafka-producer-perf-test",
    "tiny": "Tiny requests: one record each",
    "latency": "Latency at 1,000 records/s",
    "cold": "Latency beside a cold reader",
    "startup": "Start-up: process start to first answer",
    "memory": "Memory",
    "cpu": "Processor time",
    "fsync": "fsync before every acknowledgement",
    "scale": "As it grows",
    "groups": "Groups",
    "fairness": "Fairness: a client that produces every 5 ms beside each attack",
    "transactions": "Transactions",
    "cluster": "Cluster: three brokers on one ZooKeeper",
    "large_cluster": "A large cluster: three brokers, two replicas of every partition",
    "coordinators": "Coordinators: transactions and group joins over three brokers",
    "replication": "Replication: three brokers, three replicas",
    "replication_costs": "What replication costs",
    "idle_connections": "Idle connections, and what they leave to a client that works",
    "security": "TLS and logins, and what they leave of plain text",
    "protection": "SASL_SSL, ACLs and quotas together, and what they leave",
    "workers": "Workers: one and two, a process each, beside one Kafka",
    "quotas": "Quotas: a client with one, and another beside it",
}
PEERS = {KAFKA: "Kafka 3.9.1", BEFORE: "before"}
MISSING = "–"


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def headings(rows: Sequence[Measure]) -> list[str]:
    peer = PEERS[rows[0].peer if rows else KAFKA]
    return ["", "unit", "braidlog (min–max)", f"{peer} (min–max)", "ratio (min–max)", "target", ""]


def _times(ratio: float) -> str:
    return f"{ratio:.2f}×"


def _ranged(middle: float | None, ends: tuple[float, float] | None, form: Callable[[float], str] = number) -> str:
    if middle is None:
        return MISSING
    if ends is None or ends[0] == ends[1]:
        return form(middle)
    return f"{form(middle)} ({form(ends[0])}–{form(ends[1])})"


# A victim that waits no longer than this beside an attack is isolated from it.
FAIR_MS = {"p99": 50.0, "max": 250.0}
FAIR_COLUMNS = {"p50": "ms", "p99": "ms", "max": "ms", "memory": "MiB"}


def _fair_table(rows: Sequence[Measure]) -> list[list[str]]:
    """The rows of `fairness` by attack: its name, the columns of either broker, and whether braidlog was fair."""
    heads = [f"{name} {column}, {unit}" for name in ("braidlog", "Kafka") for column, unit in FAIR_COLUMNS.items()]
    attacks: dict[str, dict[str, Measure]] = {}
    for row in rows:
        attack, _, column = row.name.rpartition(": ")
        attacks.setdefault(attack, {})[column] = row
    table = [["", *heads, ""]]
    for attack, columns in attacks.items():
        values = {
            (broker, column): columns[column].median(broker) if column in columns else None
            for broker in (BRAIDLOG, KAFKA)
            for column in FAIR_COLUMNS
        }
        ours = [(values[BRAIDLOG, column], most) for column, most in FAIR_MS.items()]
        if any(value is None for value, _ in ours):
            verdict = Verdict.NOT_MEASURED
        else:
            fair = all(value is not None and value <= most for value, most in ours)
            verdict = Verdict.REACHED if fair else Verdict.NOT_REACHED
        table.append([attack, *(_ranged(value, None) for value in values.values()), verdict.value])
    return table


def _bound(row: Measure) -> str:
    sign = "≥" if row.better is Better.HIGHER else "≤"
    if row.limit is not None:
        return f"{sign} {row.limit:g} {row.unit}"
    return f"{sign} {row.target}×" if row.target is not None else ""


def cells(row: Measure) -> list[str]:
    return [
        row.name,
        row.unit,
        _ranged(row.median(BRAIDLOG), row.spread(BRAIDLOG)),
        _ranged(row.median(row.peer), row.spread(row.peer)),
        _ranged(row.ratio(), row.ratio_spread(), _times),
        _bound(row),
        row.verdict().value,
    ]


def _fair_markdown(rows: Sequence[Measure]) -> str:
    head, *table = _fair_table(rows)
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 2) + "---|"]
    return "\n".join([*lines, *("| " + " | ".join(line) + " |" for line in table)])


def _fair_text(rows: Sequence[Measure]) -> str:
    table = _fair_table(rows)
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = [TITLES["fairness"]]
    for line in table:
        right = [cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True)]
        lines.append(("  " + "  ".join([line[0].ljust(widths[0]), *right, line[-1]])).rstrip())
    return "\n".join(lines)


def markdown(rows: Sequence[Measure]) -> str:
    if rows and rows[0].group == "fairness":
        return _fair_markdown(rows)
    lines = ["| " + " | ".join(headings(rows)) + " |", "|---|---|---:|---:|---:|---:|---|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def text(group: str, rows: Sequence[Measure]) -> str:
    if group == "fairness":
        return _fair_text(rows)
    table = [headings(rows), *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = [TITLES.get(group, group)]
    for line in table:
        left = [line[0].ljust(widths[0]), line[1].ljust(widths[1])]
        right = [cell.rjust(width) for cell, width in zip(line[2:6], widths[2:6], strict=True)]
        lines.append(("  " + "  ".join([*left, *right, line[6]])).rstrip())
    return "\n".join(lines)


def targets(rows: Sequence[Measure]) -> str:
    """One line per group with targets: how many rows reached theirs, and the mean of their ratios."""
    lines = ["| what | target | rows reached | mean ratio | worst ratio |", "|---|---:|---:|---:|---:|"]
    kinds: dict[tuple[str, str], list[Measure]] = {}
    for row in rows:
        if row.target is not None:
            bound = "≥" if row.better is Better.HIGHER else "≤"
            kinds.setdefault((row.group, f"{bound} {row.target}×"), []).append(row)
    for (group, bound), members in kinds.items():
        ratios = [ratio for row in members if (ratio := row.ratio()) is not None]
        reached = sum(row.verdict() is Verdict.REACHED for row in members)
        mean = geometric_mean(ratios)
        worst = (min if members[0].better is Better.HIGHER else max)(ratios, default=None)
        lines.append(
            f"| {TITLES.get(group, group)} | {bound} | {reached} of {len(members)} "
            f"| {MISSING if mean is None else f'{mean:.2f}×'} | {MISSING if worst is None else f'{worst:.2f}×'} |"
        )
    return "\n".join(lines)


def conditions(result: dict[str, Any]) -> str:
    lines = [f"- {key}: {value}" for key, value in result["machine"].items()]
    lines += [f"- {key}: {value}" for key, value in result["settings"].items()]
    lines += [f"- note: {note}" for note in result["notes"]]
    lines += [f"- failed: {failure}" for failure in result["failures"]]
    return "\n".join(lines)


def blocks(result: dict[str, Any]) -> dict[str, str]:
    """Every part of the document that comes from a result, by the name in its marker."""
    rows = [Measure.from_json(row) for row in result["measures"]]
    parts = {"conditions": conditions(result), "targets": targets(rows)}
    for group in TITLES:
        members = [row for row in rows if row.group == group]
        parts[group] = markdown(members) if members else "Not measured in this run."
    return parts


def fill(document: str, parts: dict[str, str], of: str = "bench", only: Sequence[str] = ()) -> str:
    """Put each part between `<!-- bench:name -->` and `<!-- bench:end -->`; a marker without a part is an error.

    `of` is the word before the colon: results of different benchmarks fill different parts. With `only` the other
    parts stay as they are.
    """

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        if only and name not in only:
            return found[0]
        if name not in parts:
            raise KeyError(f"the document asks for {of}:{name}, which no result has")
        return f"<!-- {of}:{name} -->\n{parts[name]}\n<!-- {of}:end -->"

    pattern = re.compile(rf"<!-- {of}:(?P<name>(?!end)\w+) -->\n.*?<!-- {of}:end -->", re.DOTALL)
    return pattern.sub(replace, document)
