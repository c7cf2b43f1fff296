"""The benchmark's arithmetic: medians, ratios, spreads, verdicts."""

from __future__ import annotations

import json

import pytest
from bench.measures import BEFORE, BRAIDLOG, KAFKA, Better, Measure, Measures, Verdict, geometric_mean


def row(better: Better, target: float | None, ours: list[float], theirs: list[float]) -> Measure:
    return Measure("produce", "a row", "MB/s", better, target, {BRAIDLOG: ours, KAFKA: theirs})


def test_the_ratio_is_of_medians_not_of_means() -> None:
    measure = row(Better.HIGHER, 1.0, [100.0, 110.0, 9000.0], [50.0, 55.0, 1.0])
    assert measure.median(BRAIDLOG) == 110.0
    assert measure.median(KAFKA) == 50.0
    assert measure.ratio() == pytest.approx(2.2)


def test_the_spread_pairs_neighbouring_rounds() -> None:
    measure = row(Better.HIGHER, 1.0, [100.0, 200.0], [100.0, 50.0])
    assert measure.spread(KAFKA) == (50.0, 100.0)
    assert measure.ratio_spread() == (1.0, 4.0)


@pytest.mark.parametrize(
    ("better", "target", "ours", "verdict"),
    [
        (Better.HIGHER, 1.0, 100.0, Verdict.REACHED),
        (Better.HIGHER, 1.0, 99.9, Verdict.NOT_REACHED),
        (Better.HIGHER, 5.0, 499.0, Verdict.NOT_REACHED),
        (Better.LOWER, 0.7, 70.0, Verdict.REACHED),
        (Better.LOWER, 0.7, 71.0, Verdict.NOT_REACHED),
        (Better.LOWER, None, 1000.0, Verdict.NO_TARGET),
    ],
)
def test_a_verdict_follows_the_direction(better: Better, target: float | None, ours: float, verdict: Verdict) -> None:
    assert row(better, target, [ours], [100.0]).verdict() is verdict


def test_a_missing_side_is_not_a_success() -> None:
    alone = Measure("produce", "a row", "MB/s", Better.HIGHER, 1.0, {BRAIDLOG: [5.0]})
    assert alone.ratio() is None
    assert alone.ratio_spread() is None
    assert alone.verdict() is Verdict.NOT_MEASURED


def test_a_peer_at_zero_gives_no_ratio() -> None:
    assert row(Better.LOWER, 0.5, [1.0], [0.0]).ratio() is None


def test_rows_gather_by_group_and_name_in_order() -> None:
    measures = Measures()
    for value in (1.0, 2.0):
        measures.add(BRAIDLOG, "tiny", "one", value, "requests/s", Better.HIGHER, 1.0)
        measures.add(KAFKA, "tiny", "one", value * 2, "requests/s", Better.HIGHER, 1.0)
        measures.add(BRAIDLOG, "tiny", "other", value, "requests/s", Better.HIGHER)
        measures.add(BRAIDLOG, "fsync", "one", value, "messages/s", Better.HIGHER)
    assert [measure.name for measure in measures.group("tiny")] == ["one", "other"]
    assert measures.group("tiny")[0].values == {BRAIDLOG: [1.0, 2.0], KAFKA: [2.0, 4.0]}
    assert len(measures.rows()) == 3


def test_a_row_survives_its_file() -> None:
    measure = row(Better.LOWER, 0.7, [1.0, 2.0], [3.0])
    assert Measure.from_json(json.loads(json.dumps(measure.as_json()))) == measure


def test_half_and_double_cancel_out() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([]) is None


def test_another_checkout_takes_kafkas_place_in_the_ratio() -> None:
    measured = Measure("produce", "100 B", "records/s", Better.HIGHER)
    measured.add(BRAIDLOG, 30.0)
    measured.add(BEFORE, 20.0)
    assert measured.peer == BEFORE
    assert measured.ratio() == 1.5


def test_a_limit_holds_for_our_own_value_whether_a_peer_was_measured_or_not() -> None:
    alone = Measure("replication_costs", "a fetch", "µs", Better.LOWER, values={BRAIDLOG: [90.0, 110.0]}, limit=100.0)
    assert alone.verdict() is Verdict.REACHED
    assert Measure.from_json(json.loads(json.dumps(alone.as_json()))) == alone
    alone.add(BRAIDLOG, 111.0)
    assert alone.verdict() is Verdict.NOT_REACHED
    alone.values.clear()
    assert alone.verdict() is Verdict.NOT_MEASURED
