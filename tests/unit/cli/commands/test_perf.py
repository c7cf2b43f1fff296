from __future__ import annotations

import pytest

from braidlog.cli.commands.perf import Latencies, percentile, synthetic


@pytest.mark.parametrize(
    ("count", "share", "value"),
    [(1, 0.5, 1), (2, 0.5, 1), (100, 0.5, 50), (100, 0.99, 99), (100, 0.999, 100), (1000, 0.999, 999), (10, 1.0, 10)],
)
def test_percentiles(count: int, share: float, value: int) -> None:
    assert percentile([float(number) for number in range(1, count + 1)], share) == value


def test_latencies_in_milliseconds() -> None:
    latencies = Latencies()
    assert set(latencies.row().values()) == {None}
    for number in (3, 1, 2):
        latencies.add(number / 1000)
    row = latencies.row()
    assert (row["latency_avg_ms"], row["latency_p50_ms"], row["latency_max_ms"]) == (2.0, 2.0, 3.0)


def test_values_have_their_size_and_differ() -> None:
    for size in (0, 1, 100, 70_000):
        assert {len(value) for value in synthetic(size)} == {size}
    assert len(set(synthetic(100))) == 256
    assert len(synthetic(1 << 24)) == 1
    assert synthetic(100) == synthetic(100)
