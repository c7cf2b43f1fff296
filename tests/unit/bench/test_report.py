"""Tables of a result, and their places in the document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import report
from bench.__main__ import ALL, parse, result_of
from bench.measures import BEFORE, BRAIDLOG, KAFKA, Better, Measure
from bench.session import Plan, Session


def result(*rows: Measure) -> dict[str, Any]:
    return {
        "machine": {"processor": "two cores"},
        "settings": {"acks": "all"},
        "notes": ["a note"],
        "failures": ["cold: no disk"],
        "measures": [row.as_json() for row in rows],
    }


FAST = Measure(
    "tiny",
    "produce",
    "requests/s",
    Better.HIGHER,
    1.0,
    {BRAIDLOG: [90_000.0, 98_000.0, 99_000.0], KAFKA: [40_000.0]},
)
SLOW = Measure("latency", "p99", "ms", Better.LOWER, 0.7, {BRAIDLOG: [0.9], KAFKA: [1.0]})
ALONE = Measure("scale", "10,000 partitions", "KiB", Better.LOWER, None, {BRAIDLOG: [12.0]})


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (98_000.4, "98,000"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.0123, "0.012")],
)
def test_numbers_keep_three_digits(value: float, shown: str) -> None:
    assert report.number(value) == shown


def test_a_row_says_median_spread_ratio_and_verdict() -> None:
    assert report.cells(FAST) == [
        "produce",
        "requests/s",
        "98,000 (90,000–99,000)",
        "40,000",
        "2.45×",
        "≥ 1.0×",
        "reached",
    ]
    assert report.cells(SLOW)[4:] == ["0.90×", "≤ 0.7×", "not reached"]
    two_rounds = Measure("tiny", "fetch", "", Better.HIGHER, None, {BRAIDLOG: [1.0, 3.0], KAFKA: [2.0, 2.0]})
    assert report.cells(two_rounds)[4] == "1.00× (0.50×–1.50×)"
    assert report.cells(ALONE)[3:] == ["–", "–", "", ""]


def test_a_limit_is_shown_with_its_unit() -> None:
    row = Measure("replication_costs", "catch-up", "MB/s", Better.HIGHER, values={BRAIDLOG: [420.0]}, limit=400.0)
    assert report.cells(row)[2:] == ["420", "–", "–", "≥ 400 MB/s", "reached"]


def test_the_target_table_counts_honestly() -> None:
    table = report.targets([FAST, SLOW, ALONE])
    assert "| Tiny requests: one record each | ≥ 1.0× | 1 of 1 | 2.45× | 2.45× |" in table
    assert "| Latency at 1,000 records/s | ≤ 0.7× | 0 of 1 | 0.90× | 0.90× |" in table
    assert "As it grows" not in table


def test_blocks_name_what_was_not_measured_and_what_failed() -> None:
    parts = report.blocks(result(FAST))
    assert "98,000" in parts["tiny"]
    assert parts["cold"] == "Not measured in this run."
    assert "- failed: cold: no disk" in parts["conditions"]


def test_filling_replaces_only_marked_parts() -> None:
    document = "before\n<!-- bench:tiny -->\nold\n<!-- bench:end -->\nafter\n"
    filled = report.fill(document, {"tiny": "new"})
    assert filled == "before\n<!-- bench:tiny -->\nnew\n<!-- bench:end -->\nafter\n"
    assert report.fill(filled, {"tiny": "new"}) == filled


def test_parts_that_are_not_asked_for_stay() -> None:
    document = "".join(f"<!-- bench:{name} -->\nold {name}\n<!-- bench:end -->\n" for name in ("tiny", "cold"))
    filled = report.fill(document, {"tiny": "new", "cold": "new"}, only=["cold"])
    assert "old tiny" in filled
    assert "old cold" not in filled


def test_an_unknown_marker_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        report.fill("<!-- bench:nothing -->\n<!-- bench:end -->", {"tiny": "new"})


def test_the_document_has_a_place_for_every_group() -> None:
    document = (Path(__file__).parents[3] / "docs" / "BENCHMARKS.md").read_text()
    for group in report.TITLES:
        assert f"<!-- bench:{group} -->" in document
    assert report.fill(document, report.blocks(result(FAST, SLOW, ALONE)))


def test_a_result_names_the_peer_that_it_was_measured_beside(tmp_path: Path) -> None:
    def settings(names: list[str], checkout: Path | None = None) -> dict[str, Any]:
        plan = Plan(1, quick=True, cold_bytes=0, scale_peer_partitions=0, checkout=checkout)
        found: dict[str, Any] = result_of(Session(plan, names, tmp_path), [], 1.0)["settings"]
        return found

    assert "ZooKeeper mode in cluster and large_cluster" in settings([BRAIDLOG, KAFKA])["Kafka"]
    here = settings([BRAIDLOG, BEFORE], Path(__file__).parents[3])
    assert here["before"].endswith(", compiled")
    assert "Kafka" not in here
    assert not {"Kafka", "before"} & settings([BRAIDLOG]).keys()


def test_every_selection_has_a_title() -> None:
    assert set(ALL) == set(report.TITLES)


def test_an_unknown_selection_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--only", "produce,nonsense"])
    assert "no such selection: nonsense" in capsys.readouterr().err


def test_fairness_has_a_row_for_each_attack_and_an_absolute_target() -> None:
    rows = [
        Measure("fairness", f"{attack}: {column}", "ms", Better.LOWER, None, {BRAIDLOG: [value], KAFKA: [3.0]})
        for attack, p99 in (("churn", 49.0), ("bomb: gzip", 51.0))
        for column, value in (("p50", 1.0), ("p99", p99), ("max", 250.0), ("memory", 2.0))
    ]
    del rows[-1].values[BRAIDLOG]
    head, _, churn, bomb = report.blocks(result(*rows))["fairness"].splitlines()
    assert head.startswith("|  | braidlog p50, ms | braidlog p99, ms | braidlog max, ms | braidlog memory, MiB | Kafka")
    assert churn == "| churn | 1.00 | 49.0 | 250 | 2.00 | 3.00 | 3.00 | 3.00 | 3.00 | reached |"
    assert bomb == "| bomb: gzip | 1.00 | 51.0 | 250 | – | 3.00 | 3.00 | 3.00 | 3.00 | not reached |"
    assert "braidlog p99, ms" in report.text("fairness", rows)
