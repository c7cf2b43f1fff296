"""The examples that end in files and tables: whole results, next to what plain Python makes of the same events."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from braidlog.testing import Broker
from pyspark_braidlog.examples import commit_log, event_sourcing, log_aggregation
from support.example_environment import committed_records, committed_rows, example_environment

EVENTS = 300


def test_log_aggregation(spark: Any, braidlog_broker: Broker, tmp_path: Path) -> None:
    events = 1000
    env = example_environment(spark, braidlog_broker, tmp_path, events)
    log_aggregation.run(env)

    half = events // 2
    lines = [*log_aggregation.lines(half), *log_aggregation.lines(events - half, half)]
    expected: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        assert line.value is not None
        if line.value.startswith(" "):
            expected["unparsed", None, None, line.value] += 1
        else:
            at, level, host, message = line.value.split(" ", 3)
            service, instance = host.split("-")
            expected[service, at[:10], level, f"{instance} {message}"] += 1
    archive = spark.read.parquet(str(env.scratch / "archive"))
    written: Counter[tuple[Any, ...]] = Counter()
    for row in archive.collect():
        if row.service == "unparsed":
            written["unparsed", None, row.level, row.message] += 1
        else:
            written[row.service, str(row.day), row.level, f"{row.instance} {row.message}"] += 1
    assert written == expected
    assert {str(row.day) for row in archive.select("day").distinct().collect()} >= {"2026-03-02", "2026-03-03"}
    # Each line once, and with its place in the topic.
    records = committed_records(env.bootstrap, f"{env.prefix}-lines")
    places = {(row.partition, row.offset) for row in archive.collect()}
    assert places == {(record.partition, record.offset) for record in records}


def test_event_sourcing(spark: Any, braidlog_broker: Broker, tmp_path: Path) -> None:
    env = example_environment(spark, braidlog_broker, tmp_path, EVENTS)
    event_sourcing.run(env)

    events = list(event_sourcing.happenings(EVENTS))
    snapshot = {row.pop("account"): row for row in committed_rows(env, "accounts")}
    assert snapshot == _accounts(events)
    assert {row["is_open"] for row in snapshot.values()} == {True, False}

    history = (
        spark.read.format("braidlog")
        .option("kafka.bootstrap.servers", env.bootstrap)
        .option("subscribe", f"{env.prefix}-events")
        .option("endingTimestamp", str(events[100].timestamp_ms))
    )
    then = {row.account: row.asDict() for row in event_sourcing.accounts(history.load()).collect()}
    for name, row in then.items():
        assert row.pop("account") == name
    assert then == _accounts(events[:100])


def _accounts(events: list[Any]) -> dict[str, dict[str, Any]]:
    happenings = [json.loads(event.value) for event in events]
    accounts = {}
    for name in {happening["account"] for happening in happenings}:
        own = [happening for happening in happenings if happening["account"] == name]
        signs = {"deposited": 1, "withdrawn": -1}
        accounts[name] = {
            "owner": own[0]["owner"],
            "balance_cents": sum(signs.get(each["what"], 0) * each.get("cents", 0) for each in own),
            "events": len(own),
            "is_open": own[-1]["what"] != "closed",
        }
    return accounts


@pytest.mark.braidlog(settings={"log.cleaner.backoff.ms": "100"})
def test_commit_log(
    spark: Any, braidlog_fresh_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = example_environment(spark, braidlog_fresh_broker, tmp_path, EVENTS)
    commit_log.run(env)

    table: dict[str, tuple[str, int]] = {}
    for change in commit_log.changes(EVENTS):
        assert change.key is not None
        table.pop(change.key, None)
        if change.value is not None:
            item = json.loads(change.value)
            table[change.key] = (item["shelf"], item["stock"])
    assert len(table) < len({change.key for change in commit_log.changes(EVENTS)}), "some items should be gone"
    with sqlite3.connect(env.scratch / "restored.sqlite") as restored:
        rows = restored.execute("SELECT sku, shelf, stock FROM stock").fetchall()
    restored.close()
    assert sorted(rows) == sorted((sku, *item) for sku, item in table.items())
    shown = capsys.readouterr().out
    assert "The topic was compacted" in shown
    assert shown.count("as in the shop: True") == 2
