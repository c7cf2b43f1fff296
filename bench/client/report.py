"""Results of the client benchmark as tables: for a terminal and for docs/BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.client.rows import AIOKAFKA, ARROW, CLIENTS, CONFLUENT, CONSUME, KAFKA_PYTHON, OURS, PRODUCE, TITLES, Row
from bench.measures import Measure, Verdict
from bench.report import MISSING, conditions, number

OTHERS = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
RATE_HEADINGS = ("", *(TITLES[client] for client in CLIENTS), *(f"/ {TITLES[other]}" for other in OTHERS))
COST_HEADINGS = ("", *(TITLES[client] for client in CLIENTS))


def _ours(row: Row) -> str:
    """The Arrow path is braidlog's, so it stands in braidlog's column."""
    return ARROW if row.mode == ARROW else OURS


def _cell(measure: Measure, client: str) -> str:
    middle, ends = measure.median(client), measure.spread(client)
    if middle is None or ends is None:
        return MISSING
    return number(middle) if ends[0] == ends[1] else f"{number(middle)} ({number(ends[0])}–{number(ends[1])})"


def rate_cells(row: Row) -> list[str]:
    cells = [row.name, _cell(row.rates, _ours(row)), *(_cell(row.rates, other) for other in OTHERS)]
    for other in OTHERS:
        ratio = row.ratio(other)
        cells.append(MISSING if ratio is None else f"{ratio:.2f}×")
    return cells


def cost_cells(row: Row) -> list[str]:
    return [row.name, _cell(row.costs, _ours(row)), *(_cell(row.costs, other) for other in OTHERS)]


def target_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [[f"{row.action}, {row.name}", wanted, verdict.value] for row in rows for wanted, verdict in row.targets()]


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    return [verdict for row in rows for _, verdict in row.targets()]


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    table = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    return "\n".join([*table, *("| " + " | ".join(line) + " |" for line in lines)])


def text(title: str, headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    table = [list(headings), *(list(line) for line in body)]
    widths = [max(len(line[column]) for line in table) for column in range(len(headings))]
    lines = [title]
    for line in table:
        right = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join([line[0].ljust(widths[0]), *right]))
    return "\n".join(lines)


def of_action(rows: Sequence[Row], action: str) -> list[Row]:
    """Those with a figure, one at a time before batches before Arrow, as they were measured."""
    return [row for row in rows if row.action == action and row.rates.values]


def terminal(rows: Sequence[Row]) -> str:
    parts = []
    for action in (PRODUCE, CONSUME):
        chosen = of_action(rows, action)
        if chosen:
            parts.append(text(f"{action}: records/s", RATE_HEADINGS, [rate_cells(row) for row in chosen]))
            title = f"{action}: client's CPU seconds per million records"
            parts.append(text(title, COST_HEADINGS, [cost_cells(row) for row in chosen]))
    parts.append(text("targets", ("", "wanted", ""), target_rows(rows)))
    return "\n\n".join(parts)


def blocks(result: dict[str, Any]) -> dict[str, str]:
    """Every part of the document that comes from a result, by the name in its marker `<!-- client:name -->`."""
    rows = [Row.from_json(row) for row in result["rows"]]
    parts = {
        "conditions": conditions(result),
        "targets": markdown(("", "wanted", ""), target_rows(rows)),
    }
    for action in (PRODUCE, CONSUME):
        chosen = of_action(rows, action)
        parts[action] = markdown(RATE_HEADINGS, [rate_cells(row) for row in chosen])
        parts[f"{action}_cpu"] = markdown(COST_HEADINGS, [cost_cells(row) for row in chosen])
    return parts
