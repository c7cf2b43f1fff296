from __future__ import annotations

import bisect
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.metric_names import COUNTER, GAUGE, HISTOGRAM, Metric
from braidlog.metrics import TIME_BOUNDS_MS, Histogram, MetricsRegistry

METRICS = {
    metric.name: metric
    for metric in (
        Metric("hits_total", COUNTER, (), "Hits.", ""),
        Metric("by_topic_total", COUNTER, ("topic",), "By \\ topic\nor so.", ""),
        Metric("level", GAUGE, ("a", "b"), "Level.", ""),
        Metric("plain", GAUGE, (), "Plain.", ""),
        Metric("took", HISTOGRAM, ("request",), "Took.", ""),
        Metric("took_all", HISTOGRAM, (), "Took.", ""),
    )
}


def registry() -> MetricsRegistry:
    return MetricsRegistry(METRICS)


def parsed(text: str) -> dict[tuple[str, str], float]:
    """(name, labels) -> value, by the grammar of the format; anything else fails the test."""
    samples: dict[tuple[str, str], float] = {}
    name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
    labels = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"'
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(rf"# (HELP {name} .*|TYPE {name} (counter|gauge|histogram))", line), line
            continue
        match = re.fullmatch(rf"({name})(?:\{{({labels}(?:,{labels})*)\}})? (\S+)", line)
        assert match, line
        key = (match[1], match[2] or "")
        assert key not in samples
        samples[key] = float(match[3])
    return samples


def test_a_counter_is_an_attribute_that_grows() -> None:
    page = registry()
    counter = page.counter("hits_total")
    counter.value += 3
    assert page.text() == "# HELP hits_total Hits.\n# TYPE hits_total counter\nhits_total 3\n"


def test_labels_and_help_are_escaped() -> None:
    page = registry()
    page.counters("by_topic_total").of('a"b\\c\nd').value += 1
    assert page.text() == (
        "# HELP by_topic_total By \\\\ topic\\nor so.\n"
        "# TYPE by_topic_total counter\n"
        'by_topic_total{topic="a\\"b\\\\c\\nd"} 1\n'
    )


@given(st.text())
def test_any_label_value_keeps_the_page_readable(value: str) -> None:
    page = registry()
    page.counters("by_topic_total").of(value).value += 1
    # The format knows one line end alone; Python's splitlines knows more.
    lines = page.text().split("\n")
    assert len(lines) == 4
    quoted = lines[2].removeprefix('by_topic_total{topic="').removesuffix('"} 1')
    assert re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], quoted) == value


def test_the_same_labels_are_the_same_counter_until_removed() -> None:
    page = registry()
    counters = page.counters("by_topic_total")
    counters.of("t").value += 1
    counters.of("t").value += 1
    counters.of("u").value += 5
    counters.remove("u")
    assert parsed(page.text()) == {("by_topic_total", 'topic="t"'): 2}


def test_gauges_go_down_and_may_be_read_from_their_owner() -> None:
    page = registry()
    gauge = page.gauges("level").of("x", "y")
    gauge.value = 5
    gauge.value = 0.25
    page.read("plain", lambda: math.inf)
    page.read_each("by_topic_total", lambda: [(("t",), 7), (("u",), 8)])
    assert parsed(page.text()) == {
        ("level", 'a="x",b="y"'): 0.25,
        ("plain", ""): math.inf,
        ("by_topic_total", 'topic="t"'): 7,
        ("by_topic_total", 'topic="u"'): 8,
    }


def test_a_number_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    page = registry()

    def broken() -> float:
        raise RuntimeError("no")

    page.read("plain", broken)
    page.counter("hits_total")
    assert parsed(page.text()) == {("hits_total", ""): 0}
    assert "metric plain cannot be read" in caplog.text


def test_a_histogram_has_cumulative_buckets_sum_and_count() -> None:
    page = registry()
    took = page.histograms("took", (1.0, 10.0)).of("Fetch")
    for value in (0.5, 1.0, 1.5, 100.0):
        took.record(value)
    assert parsed(page.text()) == {
        ("took_bucket", 'request="Fetch",le="1"'): 2,
        ("took_bucket", 'request="Fetch",le="10"'): 3,
        ("took_bucket", 'request="Fetch",le="+Inf"'): 4,
        ("took_sum", 'request="Fetch"'): 103,
        ("took_count", 'request="Fetch"'): 4,
    }


def test_a_labelled_histogram_without_records_is_left_out() -> None:
    page = registry()
    page.histograms("took").of("Fetch")
    page.histogram("took_all")
    names = {name for name, _ in parsed(page.text())}
    assert names == {"took_all_bucket", "took_all_sum", "took_all_count"}


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1))
def test_a_histogram_counts_every_value_in_its_class(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    expected = [0] * (len(TIME_BOUNDS_MS) + 1)
    for value in values:
        expected[bisect.bisect_left(TIME_BOUNDS_MS, value)] += 1
    assert histogram.counts == expected
    assert histogram.count == len(values)
    assert histogram.largest == max(values)


@given(st.lists(st.floats(min_value=0, max_value=1e5), min_size=1), st.floats(min_value=0, max_value=1))
def test_a_percentile_lies_in_the_class_of_the_true_one(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    rank = max(1, math.ceil(share * len(values)))
    true = sorted(values)[rank - 1]
    index = bisect.bisect_left(TIME_BOUNDS_MS, true)
    low = TIME_BOUNDS_MS[index - 1] if index else 0.0
    high = TIME_BOUNDS_MS[index] if index < len(TIME_BOUNDS_MS) else max(values)
    assert low - 1e-9 <= histogram.percentile(share) <= high + 1e-9


def test_an_empty_histogram_has_no_percentile() -> None:
    assert Histogram().percentile(0.99) == 0


def test_mistakes_are_refused() -> None:
    page = registry()
    page.counter("hits_total")
    with pytest.raises(ValueError, match="registered already"):
        page.counter("hits_total")
    with pytest.raises(KeyError):
        page.counter("nobody_declared_me")
    with pytest.raises(ValueError, match="declared as a gauge"):
        page.counter("plain")
    with pytest.raises(ValueError, match="has the labels"):
        page.gauges("level").of("x")
    with pytest.raises(ValueError, match="has the labels"):
        page.read("by_topic_total", lambda: 1)


def test_what_changes_between_slices_spoils_no_page() -> None:
    page = registry()
    levels = {("a", str(number)): float(number) for number in range(1_000)}
    page.read_each("level", lambda: levels.items())
    work = page.text_in_slices()
    slices = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            text = end.value
            break
        slices += 1
        levels["b", str(slices)] = 0.0
    assert slices >= 10
    # As it was when it was read.
    assert len(parsed(text)) == 1_000


def test_a_histogram_that_its_owner_keeps() -> None:
    page = registry()
    kept = Histogram()
    page.histograms("took").use(kept, "Fetch")
    kept.record(3.0)
    assert parsed(page.text())["took_sum", 'request="Fetch"'] == 3
