"""What commands print: tables for people, JSON for scripts, remarks and progress beside both."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from braidlog.cli.cli_terms import in_cli_terms
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import ProtocolError

Row = Mapping[str, Any]

_PROGRESS_EVERY_S: Final = 0.2


def show(rows: Sequence[Row], output: str, columns: Sequence[str] | None = None) -> None:
    """Print rows; as JSON the keys stay as they are, in a table they head the columns."""
    if output == "json":
        print(json.dumps([dict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    for line in table_lines(rows, columns):
        print(line)


def table_lines(rows: Sequence[Row], columns: Sequence[str] | None = None) -> list[str]:
    """Rows under the names of their columns."""
    names = list(columns or (rows[0] if rows else ()))
    table = [[name.upper().replace("_", "-") for name in names]]
    table += [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(names))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def show_one(row: Row, output: str) -> None:
    """Print one thing: its fields line by line, or one JSON object."""
    if output == "json":
        print(json.dumps(dict(row), indent=2, ensure_ascii=False))
        return
    width = max(map(len, row), default=0)
    for name, value in row.items():
        print(f"{name.replace('_', ' ').ljust(width)}  {_cell(value)}")


def report(text: str, row: Row, output: str) -> None:
    """What was done: a sentence for people, the same facts as one JSON object for scripts."""
    print(json.dumps(dict(row), ensure_ascii=False) if output == "json" else text)


def remark_failure(problem: ProtocolError | BraidlogError) -> None:
    """One of several that failed, the others going on."""
    text = f"{problem.message} [{problem.name}]" if isinstance(problem, ProtocolError) else str(problem)
    remark(in_cli_terms(text))


def remark(text: str) -> None:
    """Worth knowing, but not what was asked for: on standard error, so that it spoils no input."""
    with suppress(OSError):
        # A terminal that was closed meanwhile takes nothing any more.
        print(f"braidlog: {text}", file=sys.stderr)


def confirm(what: str, agreed: bool) -> None:
    """Ask a person; a script has to have agreed beforehand."""
    if agreed:
        return
    if not sys.stdin.isatty():
        raise UserError(f"this would {what}; add --yes to do it")
    print(f"This will {what}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("nothing was done")


def size_text(size: int | None) -> str | None:
    """Bytes for people: 1.5 MiB."""
    if size is None:
        return None
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


class Progress:
    """One line on standard error that says how far long work is; silent where the output is no terminal."""

    def __init__(self) -> None:
        self.is_watched = sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
        self._last = 0.0
        self._width = 0

    def show(self, text: str) -> None:
        if not self.is_watched or time.monotonic() - self._last < _PROGRESS_EVERY_S:
            return
        self._last = time.monotonic()
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Take the line away before something else is printed."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0
