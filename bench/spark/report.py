"""Results of the Spark benchmark as tables: for a terminal and for docs/BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.client.report import markdown, text
from bench.measures import Verdict
from bench.report import MISSING, conditions, number
from bench.spark.rows import ACTIONS, FLOOR, JVM, OURS, TITLES, Row

HEADINGS = ("", "unit", "braidlog (min–max)", "Spark's connector (min–max)", "ratio (min–max)")


def _cell(row: Row, who: str) -> str:
    middle, ends = row.measure.median(who), row.measure.spread(who)
    if middle is None or ends is None:
        return MISSING
    return number(middle) if ends[0] == ends[1] else f"{number(middle)} ({number(ends[0])}–{number(ends[1])})"


def _ratio(row: Row, who: str) -> str:
    ratio, ends = row.ratio(who), row.ratio_spread(who)
    if ratio is None or ends is None:
        return MISSING
    return f"{ratio:.2f}×" if ends[0] == ends[1] else f"{ratio:.2f}× ({ends[0]:.2f}×–{ends[1]:.2f}×)"


def lines(row: Row) -> list[list[str]]:
    """A line for each of our ways; the connector's figure stands beside every one."""
    found = []
    for who in row.contestants:
        if who != JVM:
            name = row.name if who == OURS else f"{row.name}, {who}"
            found.append([name, row.measure.unit, _cell(row, who), _cell(row, JVM), _ratio(row, who)])
    return found


def target_lines(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [f"{TITLES[row.action]}, {name}", wanted, verdict.value]
        for row in rows
        for name, wanted, verdict in row.targets()
    ]


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    return [verdict for row in rows for _, _, verdict in row.targets()]


def _of(rows: Sequence[Row], action: str) -> list[list[str]]:
    return [line for row in rows if row.action == action and row.measure.values for line in lines(row)]


def terminal(rows: Sequence[Row]) -> str:
    parts = []
    for action in ACTIONS:
        if body := _of(rows, action):
            note = " (lower is better)" if action == FLOOR else ""
            parts.append(text(TITLES[action] + note, HEADINGS, body))
    parts.append(text("targets", ("", "wanted", ""), target_lines(rows)))
    return "\n\n".join(parts)


def blocks(result: dict[str, Any]) -> dict[str, str]:
    """Every part of the document that comes from a result, by the name in its marker `<!-- spark:name -->`."""
    rows = [Row.from_json(row) for row in result["rows"]]
    parts = {
        "conditions": conditions(result),
        "targets": markdown(("", "wanted", ""), target_lines(rows)),
    }
    for action in ACTIONS:
        body = _of(rows, action)
        parts[action] = markdown(HEADINGS, body) if body else "Not measured in this run."
    return parts
