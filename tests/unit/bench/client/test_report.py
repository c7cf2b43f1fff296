"""Rows and tables of the client benchmark."""

from __future__ import annotations

import pytest
from bench.client.__main__ import parse
from bench.client.report import blocks, cost_cells, rate_cells, target_rows, terminal
from bench.client.rows import ARROW, CLIENTS, CONFLUENT, CONSUME, KAFKA_PYTHON, OURS, PRODUCE, Row, all_rows, mean_ratio
from bench.client.task import BATCH, ONE, Task
from bench.measures import Verdict
from bench.report import fill


def row(mode: str = ONE, action: str = PRODUCE, size: int = 200, **rates: float) -> Row:
    made = Row(action, mode, size)
    for client, rate in rates.items():
        made.add(client, seconds=2.0, cpu_seconds=1.0, records=int(rate * 2))
    return made


def test_a_row_turns_measurements_into_rates_and_costs() -> None:
    measured = row(ours=300_000, confluent=200_000, kafka_python=50_000)
    assert rate_cells(measured) == ["200 B, one at a time", "300,000", "200,000", "50,000", "–", "1.50×", "6.00×", "–"]
    assert cost_cells(measured) == ["200 B, one at a time", "1.67", "2.50", "10.0", "–"]


def test_targets_are_judged_by_medians() -> None:
    measured = row(ours=300_000, confluent=310_000, kafka_python=50_000)
    measured.add(OURS, 1.0, 1.0, 200_000)
    measured.add(OURS, 1.0, 1.0, 320_000)
    assert target_rows([measured]) == [
        ["produce, 200 B, one at a time", "≥ 1× confluent-kafka", "not reached"],
        ["produce, 200 B, one at a time", "≥ 3× kafka-python", "reached"],
        ["produce, 200 B, one at a time", "≥ 250,000/s", "reached"],
    ]
    assert rate_cells(measured)[1] == "300,000 (200,000–320,000)"


def test_a_row_without_a_figure_is_not_called_a_success() -> None:
    alone = row(confluent=200_000)
    assert [verdict for _, verdict in alone.targets()] == [Verdict.NOT_MEASURED] * 3


def test_arrow_stands_in_our_column_and_has_its_own_target() -> None:
    measured = row(ARROW, size=100, arrow=2_500_000)
    assert rate_cells(measured)[1] == "2,500,000"
    assert [verdict for _, verdict in measured.targets()] == [Verdict.REACHED]


def test_every_load_is_measured_for_those_who_have_a_call_for_it() -> None:
    rows = all_rows()
    assert len({(each.action, each.mode, each.size) for each in rows}) == len(rows) == 15
    assert all(each.clients == CLIENTS for each in rows if each.mode == ONE)
    assert {each.clients for each in rows if each.mode == BATCH and each.action == PRODUCE} == {(CONFLUENT,)}
    for each in rows:
        assert all(each.count(client, quick=True) < each.count(client, quick=False) for client in each.clients)


def test_rows_survive_json_and_fill_the_document() -> None:
    rows = [row(ours=300_000, confluent=200_000), row(action=CONSUME, ours=600_000, kafka_python=60_000)]
    result = {
        "machine": {"processor": "two cores"},
        "settings": {"producers": "acks=all"},
        "notes": [],
        "failures": [],
        "rows": [each.as_json() for each in rows],
    }
    parts = blocks(result)
    document = "# B\n<!-- bench:tiny -->\nkept\n<!-- bench:end -->\n<!-- client:produce -->\nold\n<!-- client:end -->\n"
    filled = fill(document, parts, of="client")
    assert "kept" in filled
    assert "| 200 B, one at a time | 300,000 | 200,000 | – | – | 1.50× | – | – |" in filled
    assert "600,000" in parts["consume"]
    assert "600,000" in terminal(rows)
    with pytest.raises(KeyError, match="client:nonsense"):
        fill("<!-- client:nonsense -->\n<!-- client:end -->", parts, of="client")


def test_means_are_over_single_records_only() -> None:
    rows = [row(ours=400, kafka_python=100), row(ours=900, kafka_python=100), row(BATCH, CONSUME, confluent=7)]
    assert mean_ratio(rows, PRODUCE, KAFKA_PYTHON) == pytest.approx(6.0)
    assert mean_ratio(rows, CONSUME, KAFKA_PYTHON) is None


def test_payloads_have_the_size_and_differ() -> None:
    task = Task(OURS, PRODUCE, ONE, "", "t", 4, 100, 1)
    assert {len(payload) for payload in task.payloads()} == {100}
    assert len(set(task.payloads())) == 1000


def test_the_command_line_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    options = parse(["--quick", "--clients", "ours,confluent", "--sizes", "100,200"])
    assert options.clients == ["ours", "confluent"]
    assert options.sizes == [100, 200]
    with pytest.raises(SystemExit):
        parse(["--clients", "sarama"])
    assert "no such sarama; there are ours, confluent" in capsys.readouterr().err
