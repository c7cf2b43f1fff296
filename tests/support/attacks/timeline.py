"""What a long run of attacks was like, over time: the victim's waits, the broker's memory, and who attacked when."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from support.attacks.catalog import ATTACKS
from support.attacks.processes import Victim, memory_of

WINDOW_S = 5.0
SAMPLE_S = 0.5
TOGETHER = "together"


@dataclass
class Band:
    """From when to when, in seconds from the beginning, these attacks went on."""

    begin: float
    end: float
    names: list[str]

    @property
    def kind(self) -> str:
        return TOGETHER if len(self.names) > 1 else ATTACKS[self.names[0]].harm.value


@dataclass
class Window:
    """The victim's waits of a few seconds, in milliseconds."""

    begin: float
    p50: float
    p99: float
    max: float
    records: int


@dataclass
class Timeline:
    title: str
    seconds: float = 0.0
    windows: list[Window] = field(default_factory=list)
    # (seconds, bytes)
    memory: list[tuple[float, int]] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    # What memory is meant to stay below, in bytes, and the victim's p99 in milliseconds.
    memory_bound: int = 0
    p99_bound: float = 50.0

    def attacks_at(self, second: float) -> list[str]:
        return [name for band in self.bands if band.begin <= second < band.end for name in band.names]

    def write(self, picture: Path) -> None:
        """The picture, and beside it the numbers as JSON."""
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(draw(self), encoding="utf-8")
        picture.with_suffix(".json").write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


class Recorder:
    """Fills a timeline while attacks run; its clock starts when it is made."""

    def __init__(self, timeline: Timeline, pid: int, victim: Victim) -> None:
        self.timeline = timeline
        self._pid = pid
        self._victim = victim
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory samples", daemon=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(10)
            self._close_windows()

    @contextmanager
    def band(self, names: Sequence[str]) -> Iterator[None]:
        begin = self.seconds
        try:
            yield
        finally:
            self.timeline.bands.append(Band(begin, self.seconds, list(names)))

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            try:
                self.timeline.memory.append((self.seconds, memory_of(self._pid)))
            except (OSError, ProcessLookupError):
                return  # the broker is dead, which the test will find out

    def _close_windows(self) -> None:
        timeline = self.timeline
        timeline.seconds = self.seconds
        for number in range(int(timeline.seconds / WINDOW_S)):
            begin = self._began + number * WINDOW_S
            seen = self._victim.between(begin, begin + WINDOW_S)
            if seen.values:
                timeline.windows.append(
                    Window(number * WINDOW_S, seen.p50, seen.p99, seen.max, len(seen.values)),
                )


# The picture

WIDTH, LEFT, RIGHT = 1400, 70, 20
LABELS, PANEL, GAP, BOTTOM = 190, 250, 40, 60
PLOT = WIDTH - LEFT - RIGHT
HEIGHT = LABELS + 2 * PANEL + GAP + BOTTOM
COLOURS = {"memory": "#fbe3c8", "time": "#d9e8f7", TOGETHER: "#e6d9f2"}
KINDS = {"memory": "takes memory", "time": "takes time", TOGETHER: "several at once"}
LONGEST_LABEL = 30
DECADES = (1, 10, 100, 1_000, 10_000)


def draw(timeline: Timeline) -> str:
    """Two panels over the same minutes: the waits of the victim, on a logarithmic scale, and the memory."""
    seconds = max(timeline.seconds, 1.0)
    waits_top, memory_top = LABELS, LABELS + PANEL + GAP

    def x(second: float) -> float:
        return LEFT + PLOT * second / seconds

    most = max([wait.max for wait in timeline.windows] + [timeline.p99_bound * 2])
    decades = [decade for decade in DECADES if decade <= 10 ** math.ceil(math.log10(most))]
    top_wait = max(10 ** math.ceil(math.log10(most)), 100)

    def y_wait(ms: float) -> float:
        share = math.log10(max(ms, 0.1) / 0.1) / math.log10(top_wait / 0.1)
        return waits_top + PANEL * (1 - min(1.0, share))

    largest = max([size for _, size in timeline.memory] + [timeline.memory_bound]) / 1e6
    step = _round_step(largest * 1.1)
    top_memory = step * math.ceil(largest * 1.1 / step)

    def y_memory(size: float) -> float:
        return memory_top + PANEL * (1 - size / 1e6 / top_memory)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 20, timeline.title, size=16),
    ]
    parts += _legend()
    for band in timeline.bands:
        parts += _band(band, x, waits_top, memory_top)
    for decade in (0.1, *decades):
        parts += _grid(y_wait(decade), f"{decade:,}")
    for number in range(round(top_memory / step) + 1):
        parts += _grid(y_memory(number * step * 1e6), f"{number * step:,.0f}")
    parts += [
        _axis_title(waits_top, "the victim's wait, ms"),
        _axis_title(memory_top, "resident memory, MB"),
        _bound(y_wait(timeline.p99_bound), f"target of the p99: {timeline.p99_bound:g} ms"),
    ]
    if timeline.memory_bound:
        parts.append(_bound(y_memory(timeline.memory_bound), f"bound: {timeline.memory_bound / 1e6:,.0f} MB"))
    middle = WINDOW_S / 2
    windows = timeline.windows
    parts += [
        _line([(x(wait.begin + middle), y_wait(wait.max)) for wait in windows], "#e0a3a3", 1),
        _line([(x(wait.begin + middle), y_wait(wait.p99)) for wait in windows], "#b01515", 1.6),
        _line([(x(wait.begin + middle), y_wait(wait.p50)) for wait in windows], "#2b7a2b", 1.2),
        _line([(x(second), y_memory(size)) for second, size in timeline.memory], "#1f4e9c", 1.4),
    ]
    parts += _minutes(seconds, x, memory_top + PANEL)
    return "\n".join([*parts, "</svg>", ""])


def _round_step(most: float) -> float:
    """About five lines, at one, two or five times a power of ten."""
    rough = most / 5
    power = 10 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _legend() -> list[str]:
    parts, x = [], LEFT
    for colour, name in (("#b01515", "p99"), ("#e0a3a3", "longest"), ("#2b7a2b", "p50"), ("#1f4e9c", "memory")):
        parts.append(f'<line x1="{x}" y1="38" x2="{x + 22}" y2="38" stroke="{colour}" stroke-width="2.5"/>')
        parts.append(_text(x + 27, 42, name))
        x += 90
    for kind, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="31" width="22" height="13" fill="{colour}" stroke="#999" stroke-width="0.5"/>')
        parts.append(_text(x + 27, 42, f"an attack that {KINDS[kind]}" if kind != TOGETHER else KINDS[kind]))
        x += 205
    return parts


def _band(band: Band, x: Callable[[float], float], waits_top: float, memory_top: float) -> list[str]:
    left, right = x(band.begin), x(band.end)
    said = ", ".join(band.names)
    parts = [
        f'<rect x="{left:.1f}" y="{top}" width="{max(right - left, 0.5):.1f}" height="{PANEL}" '
        f'fill="{COLOURS[band.kind]}"><title>{escape(said)}</title></rect>'
        for top in (waits_top, memory_top)
    ]
    label = f"{len(band.names)} at once" if band.kind == TOGETHER else said
    middle, foot = (left + right) / 2 + 2.5, waits_top - 4
    turn = f' transform="rotate(-90 {middle:.1f} {foot})" fill="#333"'
    parts.append(_text(middle, foot, label[:LONGEST_LABEL], size=8, more=turn))
    return parts


def _grid(y: float, label: str) -> list[str]:
    line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#bbb" stroke-width="0.5"/>'
    return [line, _text(LEFT - 6, y + 4, label, anchor="end", size=11)]


def _axis_title(top: float, title: str) -> str:
    y = top + PANEL / 2
    return _text(18, y, title, anchor="middle", size=13, more=f' transform="rotate(-90 18 {y})"')


def _bound(y: float, label: str) -> str:
    line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#444" stroke-dasharray="6 4"/>'
    return line + _text(WIDTH - RIGHT - 4, y - 4, label, anchor="end", size=11)


def _line(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def _minutes(seconds: float, x: Callable[[float], float], foot: float) -> list[str]:
    step = max(1, round(_round_step(seconds / 60 / 2)))
    parts = [_text(LEFT + PLOT / 2, foot + 42, "minutes since the beginning", anchor="middle", size=13)]
    for minute in range(0, int(seconds / 60) + 1, step):
        at = x(minute * 60)
        parts.append(f'<line x1="{at:.1f}" y1="{foot}" x2="{at:.1f}" y2="{foot + 5}" stroke="#444"/>')
        parts.append(_text(at, foot + 20, str(minute), anchor="middle", size=11))
    return parts
