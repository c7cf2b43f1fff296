"""The table of the command line's benchmark, and its place in the document."""

from __future__ import annotations

from pathlib import Path

from bench.cli import BRAIDLOG, KCAT, PRODUCE, Row, all_rows, markdown, parse
from bench.measures import Verdict
from bench.report import fill

PAGE = Path(__file__).parents[3] / "docs" / "BENCHMARKS.md"


def row(ours: list[float], theirs: list[float]) -> Row:
    made = Row("produce lines", PRODUCE, {})
    for program, values in ((BRAIDLOG, ours), (KCAT, theirs)):
        for value in values:
            made.add(program, value, value / 2)
    return made


def test_the_speed_is_that_of_neighbouring_rounds() -> None:
    measured = row([1.0, 2.0, 0.5], [2.0, 2.0, 0.5])
    assert measured.speeds() == [2.0, 1.0, 1.0]
    assert measured.verdict() is Verdict.REACHED
    assert row([2.0], [1.0]).verdict() is Verdict.NOT_REACHED
    assert row([], [1.0]).verdict() is Verdict.NOT_MEASURED


def test_the_table() -> None:
    assert markdown([row([1.0, 2.0, 0.5], [2.0, 2.0, 0.5]), row([], [])]).splitlines()[2:] == [
        "| produce lines | 1.00 (0.50–2.00) | 2.00 (0.50–2.00) | 1.00× (1.00×–2.00×) "
        "| 0.25 | 0.25 | ≥ 1.0× | reached |",
        "| produce lines | – | – | – | – | – | ≥ 1.0× | not measured |",
    ]


def test_every_row_is_for_both_programs_and_the_page_has_its_place() -> None:
    assert all(set(each.words) == {BRAIDLOG, KCAT} for each in all_rows())
    filled = fill(PAGE.read_text(), {"conditions": "- here", "table": "TABLE"}, of="cli")
    assert "<!-- cli:table -->\nTABLE\n<!-- cli:end -->" in filled


def test_options() -> None:
    assert parse(["--quick", "--rounds", "3"]).rounds == 3
