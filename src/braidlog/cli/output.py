"""What commands print: tables for people, JSON for scripts, errors in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def show(rows: Sequence[Row], output: str, columns: Sequence[str] | None = None) -> None:
    """Print rows; as JSON the keys stay as they are, in a table they head the columns."""
    if output == "json":
        print(json.dumps([dict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    names = list(columns or (rows[0] if rows else ()))
    table = [[name.upper().replace("_", "-") for name in names]]
    table += [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(names))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_one(row: Row, output: str) -> None:
    """Print one thing: its fields line by line, or one JSON object."""
    if output == "json":
        print(json.dumps(dict(row), indent=2, ensure_ascii=False))
        return
    width = max(map(len, row), default=0)
    for name, value in row.items():
        print(f"{name.replace('_', ' ').ljust(width)}  {_cell(value)}")


def say(text: str, output: str = "table") -> None:
    """A remark for people; scripts that read JSON do not get it on their stream."""
    print(text, file=sys.stderr if output == "json" else sys.stdout)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
