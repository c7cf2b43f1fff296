"""`braidlog top` as text: what fits on a terminal, and the terminal itself while it is watched."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from braidlog.cli.output import size_text, table_lines

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"

# A table gets at least its header and this many rows, if the terminal is not smaller than that.
_FEWEST_ROWS: Final = 3


def screen_lines(report: Mapping[str, Any], height: int | None = None) -> list[str]:
    """All of it, or what fits in so many lines: tables are cut, and say how many rows are left out."""
    head = _summary(report)
    tables = [(title, lines) for title, lines in _tables(report) if len(lines) > 1]
    if height is None:
        return head + [line for title, lines in tables for line in ("", title, *lines)]
    # The brokers come first; what they leave is shared out.
    left = height - len(head)
    out = head
    for number, (title, lines) in enumerate(tables):
        others = sum(min(len(each), 1 + _FEWEST_ROWS) + 2 for _, each in tables[number + 1 :])
        room = max(left - others, 3 + _FEWEST_ROWS) - 2
        if left < 4:
            break
        shown = lines if len(lines) <= min(room, left - 2) else _cut(lines, min(room, left - 2))
        out = [*out, "", title, *shown]
        left -= len(shown) + 2
    return out[:height]


def _cut(lines: list[str], room: int) -> list[str]:
    kept = lines[: max(1, room - 1)]
    return [*kept, f"… {len(lines) - len(kept)} more"]


def _summary(report: Mapping[str, Any]) -> list[str]:
    brokers = report["brokers"]
    up = sum(each["state"] == "up" for each in brokers)
    controller = "no controller" if report["controller"] is None else f"controller {report['controller']}"
    troubles = [f"{report['offline']} offline", f"{report['under_replicated']} under-replicated"]
    if report["under_min_isr"] is not None:
        troubles.append(f"{report['under_min_isr']} under min.insync.replicas")
    return [
        f"cluster {report['cluster_id']}  {controller}  {up} of {len(brokers)} brokers up",
        f"partitions {report['partitions']}: {', '.join(troubles)}",
        f"in {rate_text(report['bytes_in_per_second'])}  out {rate_text(report['bytes_out_per_second'])}  "
        f"records {number_text(report['records_in_per_second'])}/s  "
        f"requests {number_text(report['requests_per_second'])}/s",
        *(f"no metrics of broker {broker}: {why}" for broker, why in report["unread_metrics"].items()),
    ]


def _tables(report: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield "BROKERS", table_lines([_broker_row(each) for each in report["brokers"]])
    yield "REPLICAS NOT IN SYNC", table_lines([_replica_row(each) for each in report["not_in_sync"]])
    yield "GROUPS", table_lines([_group_row(each) for each in report["groups"]])
    yield "TOPICS", table_lines([_topic_row(each) for each in report["topics"]])


def _broker_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "broker": f"{row['broker']}{'*' if row['controller'] else ''}",
        "state": row["state"],
        "in": rate_text(row["bytes_in_per_second"]),
        "out": rate_text(row["bytes_out_per_second"]),
        "copied": rate_text(row["replicated_in_per_second"]),
        "records/s": number_text(row["records_in_per_second"]),
        "requests/s": number_text(row["requests_per_second"]),
        "idle": None if row["idle"] is None else f"{row['idle']:.0%}",
        # A narrow terminal shows no more than this.
        "leads": row["leads"],
        "replicas": row["replicas"],
        "not_online": row["not_online"],
        "memory": size_text(None if row["memory_bytes"] is None else int(row["memory_bytes"])),
        "rack": row["rack"],
        "address": row["address"],
    }


def _replica_row(row: Mapping[str, Any]) -> dict[str, Any]:
    seconds = row["behind_seconds"]
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "leader": row["leader"],
        "broker": row["broker"],
        "behind": number_text(row["behind_records"]),
        "for": None if seconds is None else f"{seconds:.0f} s",
    }


def _group_row(row: Mapping[str, Any]) -> dict[str, Any]:
    change = row["lag_change_per_second"]
    return {
        "group": row["group"],
        "state": row["state"],
        "lag": number_text(row["lag"]),
        "lag/s": None if change is None else f"{change:+.0f}",
    }


def _topic_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "partitions": row["partitions"],
        "in": rate_text(row["bytes_in_per_second"]),
        "out": rate_text(row["bytes_out_per_second"]),
        "records/s": number_text(row["records_in_per_second"]),
    }


def rate_text(rate: float | None) -> str:
    return "-" if rate is None else f"{size_text(int(rate))}/s"


def number_text(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


# The terminal


def is_watched() -> bool:
    """Whether a person looks on, on a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Screen:
    """The terminal while it is drawn on; `q` ends it."""

    def __init__(self) -> None:
        self._coloured = not os.environ.get("NO_COLOR")

    def draw(self, lines: list[str]) -> None:
        width, height = shutil.get_terminal_size()
        out = [_HOME]
        for line in lines[: height - 1]:
            # A line that wraps would move all that follow.
            out.append(self._painted(line[: width - 1]) + _REST_OF_LINE + "\n")
        out.append(_REST_OF_SCREEN)
        sys.stdout.write("".join(out))
        sys.stdout.flush()

    def _painted(self, line: str) -> str:
        if not self._coloured:
            return line
        if _is_trouble(line):
            return f"{_RED}{line}{_PLAIN}"
        return f"{_BOLD}{line}{_PLAIN}" if line.isupper() else line

    @property
    def height(self) -> int:
        return shutil.get_terminal_size().lines - 1

    def wait(self, seconds: float) -> bool:
        """Until then, or until a key says that it is enough: whether to go on."""
        if not sys.stdin.isatty():
            select.select([], [], [], seconds)
            return True
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return not ready or os.read(sys.stdin.fileno(), 16).strip().lower() not in (b"q", b"\x1b", b"")


def _is_trouble(line: str) -> bool:
    words = line.split()
    if line.startswith("partitions "):
        return any(count not in ("0",) for count in words[2::2] if count.isdecimal())
    return line.startswith("no answer") or words[1:2] == ["down"]


@contextmanager
def drawn_on() -> Iterator[Screen]:
    """The terminal as it was afterwards, also while the program is stopped (Ctrl-Z)."""
    keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = None if keyboard is None else termios.tcgetattr(keyboard)

    def enter() -> None:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()

    def leave() -> None:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        if keyboard is not None and before is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

    def pause(number: int, frame: FrameType | None) -> None:
        leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        enter()

    paused_before = signal.signal(signal.SIGTSTP, pause)
    enter()
    try:
        yield Screen()
    finally:
        leave()
        signal.signal(signal.SIGTSTP, paused_before)
