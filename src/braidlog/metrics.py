"""Numbers about the broker, and their Prometheus text (format 0.0.4).

Recording is an addition to an attribute (`counter.value += n`), or one `record` on a histogram; everything else is
paid for when the page is read. What others count anyway is not counted twice: a gauge or counter made with
`read` asks its owner when the page is read. Names, help and labels come from `braidlog.metric_names`, so that no
number goes out without an entry in docs/METRICS.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Final, TypeAlias

from braidlog.metric_names import CATALOGUE, COUNTER, GAUGE, HISTOGRAM, Metric

log = logging.getLogger("braidlog.metrics")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Label values -> number, as a `read` callback gives them; values in the order of the metric's labels.
Samples: TypeAlias = "Iterable[tuple[tuple[str, ...], float]]"

# Upper bounds, in milliseconds, of the buckets for times; and in bytes, for sizes.
TIME_BOUNDS_MS: Final[tuple[float, ...]] = (
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0, 30000.0,
)  # fmt: skip
SIZE_BOUNDS: Final[tuple[float, ...]] = (
    64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0,
)  # fmt: skip

# Formatted in about a tenth of a millisecond.
_LINES_AT_ONCE: Final = 50


class Counter:
    """Only ever grows: `counter.value += n`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Gauge:
    """Goes up and down: `gauge.value = n`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Histogram:
    """Counts by size class; percentiles are good to the width of a class."""

    __slots__ = ("bounds", "count", "counts", "largest", "total")

    def __init__(self, bounds: tuple[float, ...] = TIME_BOUNDS_MS) -> None:
        self.bounds = bounds
        # counts[i] holds values in (bounds[i - 1], bounds[i]]; the last is without bound.
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def record(self, value: float) -> None:
        # Most values are in the first classes: a search would take longer.
        place = 0
        for bound in self.bounds:
            if value <= bound:
                break
            place += 1
        self.counts[place] += 1
        self.count += 1
        self.total += value
        if value > self.largest:
            self.largest = value

    def percentile(self, share: float) -> float:
        """The value below which `share` (0.99) of the records lie, interpolated within its class; 0 for none."""
        wanted = share * self.count
        seen = 0
        for index, count in enumerate(self.counts):
            if count and seen + count >= wanted:
                low = self.bounds[index - 1] if index else 0.0
                high = min(self.bounds[index], self.largest) if index < len(self.bounds) else self.largest
                return low + (max(high, low) - low) * (wanted - seen) / count
            seen += count
        return self.largest


class _Family:
    """All numbers of one name."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def lines(self) -> list[str]:
        raise NotImplementedError

    def lines_in_slices(self) -> Generator[None, None, list[str]]:
        """For those with a line for each partition, or more."""
        yield
        return self.lines()


class Counters(_Family):
    """Counters of one name by label values."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._of: dict[tuple[str, ...], Counter] = {}

    def of(self, *labels: str) -> Counter:
        """The counter of these label values; keep it, rather than asking for each addition."""
        found = self._of.get(labels)
        if found is None:
            _check_labels(self.metric, labels)
            found = self._of[labels] = Counter()
        return found

    def remove(self, *labels: str) -> None:
        """Forget what is gone, a deleted topic for one."""
        self._of.pop(labels, None)

    def lines(self) -> list[str]:
        return [_line(self.metric, labels, counter.value) for labels, counter in self._of.items()]


class Gauges(_Family):
    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._of: dict[tuple[str, ...], Gauge] = {}

    def of(self, *labels: str) -> Gauge:
        found = self._of.get(labels)
        if found is None:
            _check_labels(self.metric, labels)
            found = self._of[labels] = Gauge()
        return found

    def remove(self, *labels: str) -> None:
        self._of.pop(labels, None)

    def lines(self) -> list[str]:
        return [_line(self.metric, labels, gauge.value) for labels, gauge in self._of.items()]


class Histograms(_Family):
    def __init__(self, metric: Metric, bounds: tuple[float, ...]) -> None:
        super().__init__(metric)
        self._bounds = bounds
        self._of: dict[tuple[str, ...], Histogram] = {}

    def of(self, *labels: str) -> Histogram:
        found = self._of.get(labels)
        if found is None:
            _check_labels(self.metric, labels)
            found = self._of[labels] = Histogram(self._bounds)
        return found

    def use(self, kept: Histogram, *labels: str) -> None:
        """One that its owner keeps."""
        _check_labels(self.metric, labels)
        self._of[labels] = kept

    def lines(self) -> list[str]:
        out: list[str] = []
        for labels, histogram in self._of.items():
            # A label per API would be two thousand empty lines on a quiet broker.
            if histogram.count or not labels:
                out += _histogram_lines(self.metric, labels, histogram)
        return out


class _Read(_Family):
    """Counters or gauges that are kept elsewhere."""

    def __init__(self, metric: Metric, read: Callable[[], Samples]) -> None:
        super().__init__(metric)
        self._read = read

    def lines_in_slices(self) -> Generator[None, None, list[str]]:
        """What is read may change between slices, so it is read in one go: the lines take the time."""
        out: list[str] = []
        for number, (labels, value) in enumerate(list(self._read())):
            if number % _LINES_AT_ONCE == 0:
                yield
            out.append(_line(self.metric, labels, value))
        return out


class _ReadOne(_Family):
    def __init__(self, metric: Metric, read: Callable[[], float]) -> None:
        super().__init__(metric)
        self._read = read

    def lines(self) -> list[str]:
        return [_line(self.metric, (), self._read())]


class MetricsRegistry:
    """Everything on the metrics page, by name."""

    def __init__(self, catalogue: Mapping[str, Metric] = CATALOGUE) -> None:
        self._catalogue = catalogue
        self._families: dict[str, _Family] = {}

    def counter(self, name: str) -> Counter:
        return self.counters(name).of()

    def counters(self, name: str) -> Counters:
        family = Counters(self._metric(name, COUNTER))
        self._add(family)
        return family

    def gauge(self, name: str) -> Gauge:
        return self.gauges(name).of()

    def gauges(self, name: str) -> Gauges:
        family = Gauges(self._metric(name, GAUGE))
        self._add(family)
        return family

    def histogram(self, name: str, bounds: tuple[float, ...] = TIME_BOUNDS_MS) -> Histogram:
        return self.histograms(name, bounds).of()

    def histograms(self, name: str, bounds: tuple[float, ...] = TIME_BOUNDS_MS) -> Histograms:
        family = Histograms(self._metric(name, HISTOGRAM), bounds)
        self._add(family)
        return family

    def read(self, name: str, read: Callable[[], float]) -> None:
        """A counter or gauge without labels whose number `read` gives."""
        metric = self._metric(name, None)
        _check_labels(metric, ())
        self._add(_ReadOne(metric, read))

    def read_each(self, name: str, read: Callable[[], Samples]) -> None:
        """A counter or gauge whose numbers, by label values, `read` gives."""
        self._add(_Read(self._metric(name, None), read))

    def text(self) -> str:
        """The page, at once."""
        work = self.text_in_slices()
        while True:
            try:
                next(work)
            except StopIteration as end:
                page: str = end.value
                return page

    def text_in_slices(self) -> Generator[None, None, str]:
        """The page, which thousands of partitions make long. A number that cannot be read is left out and logged."""
        out: list[str] = []
        for family in list(self._families.values()):
            try:
                lines = yield from family.lines_in_slices()
            except Exception as problem:
                log.error("metric %s cannot be read", family.metric.name, exc_info=problem)
                continue
            if lines:
                metric = family.metric
                out.append(f"# HELP {metric.name} {_escape_help(metric.help)}\n# TYPE {metric.name} {metric.kind}\n")
                out += lines
        return "".join(out)

    def _metric(self, name: str, kind: str | None) -> Metric:
        metric = self._catalogue[name]
        if kind is not None and metric.kind != kind:
            raise ValueError(f"{name} is declared as a {metric.kind}, not a {kind}")
        return metric

    def _add(self, family: _Family) -> None:
        name = family.metric.name
        if name in self._families:
            raise ValueError(f"{name} is registered already")
        self._families[name] = family


def _check_labels(metric: Metric, labels: tuple[str, ...]) -> None:
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, got the values {labels}")


def _line(metric: Metric, labels: tuple[str, ...], value: float) -> str:
    if not labels:
        return f"{metric.name} {_number(value)}\n"
    return f"{metric.name}{{{_pairs(metric, labels)}}} {_number(value)}\n"


def _histogram_lines(metric: Metric, labels: tuple[str, ...], histogram: Histogram) -> list[str]:
    pairs = _pairs(metric, labels)
    prefix = f"{pairs}," if pairs else ""
    suffix = f"{{{pairs}}}" if pairs else ""
    out: list[str] = []
    cumulative = 0
    for index, bound in enumerate(histogram.bounds):
        cumulative += histogram.counts[index]
        out.append(f'{metric.name}_bucket{{{prefix}le="{_number(bound)}"}} {cumulative}\n')
    out.append(f'{metric.name}_bucket{{{prefix}le="+Inf"}} {histogram.count}\n')
    out.append(f"{metric.name}_sum{suffix} {_number(histogram.total)}\n")
    out.append(f"{metric.name}_count{suffix} {histogram.count}\n")
    return out


def _pairs(metric: Metric, labels: tuple[str, ...]) -> str:
    return ",".join([f'{name}="{_escape_label(value)}"' for name, value in zip(metric.labels, labels, strict=True)])


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value):
        return str(int(value))
    return repr(value)
