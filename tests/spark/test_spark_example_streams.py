"""The examples that go from topic to topic: whole results, next to what plain Python makes of the same events."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from braidlog.testing import Broker
from pyspark_braidlog.examples import activity_tracking, messaging, metrics_monitoring, stream_processing
from pyspark_braidlog.examples.environment import Event
from support.example_environment import committed_records, committed_rows, example_environment

EVENTS = 240


def _decoded(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The JSON of events, with times as such; what is no JSON is left out."""
    rows = []
    for event in events:
        assert event.value is not None
        try:
            row = json.loads(event.value)
        except ValueError:
            continue
        rows.append(row | {"at": datetime.fromisoformat(row["at"])})
    return rows


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _sorted(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows))


def _floor(moment: datetime, step: timedelta) -> datetime:
    return moment - (moment - datetime(2026, 1, 1, tzinfo=UTC)) % step


def test_messaging(spark: Any, braidlog_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = example_environment(spark, braidlog_broker, tmp_path, EVENTS)
    messaging.run(env)

    reply_topics = [f"{env.prefix}-replies-web", f"{env.prefix}-replies-app"]
    dead_letters = f"{env.prefix}-dead-letters"
    expected = []
    for event in messaging.requests(EVENTS, reply_topics):
        headers = dict(event.headers)
        try:
            order = json.loads(event.value or "")
            total = sum(item["quantity"] * item["cents"] for item in order["items"])
            reply = {"order": order["order"], "total_cents": total}
        except ValueError:
            reply = {"error": "value is not JSON"}
        topic = headers.get("reply-to", dead_letters.encode()).decode()
        expected.append((topic, event.key, str(sorted(reply.items())), headers["correlation-id"]))
    written = []
    for topic in (*reply_topics, dead_letters):
        for record in committed_records(env.bootstrap, topic):
            ((name, correlation),) = record.headers
            assert name == "correlation-id"
            assert record.key is not None
            reply = str(sorted(json.loads(record.value or b"").items()))
            written.append((topic, record.key.decode(), reply, correlation))
    assert _sorted(written) == _sorted(expected)
    assert {topic for topic, *_ in written} == {*reply_topics, dead_letters}
    shown = capsys.readouterr().out
    assert f"$ braidlog groups describe {env.prefix}-workers" in shown


def test_activity_tracking(spark: Any, braidlog_broker: Broker, tmp_path: Path) -> None:
    env = example_environment(spark, braidlog_broker, tmp_path, EVENTS)
    activity_tracking.run(env)

    away, lateness = timedelta(minutes=30), timedelta(minutes=10)
    by_user = defaultdict(list)
    views = _decoded(activity_tracking.views(EVENTS))
    for view in sorted(views, key=lambda view: view["at"]):
        visits = by_user[view["user"]]
        if visits and view["at"] - visits[-1][-1]["at"] < away:
            visits[-1].append(view)
        else:
            visits.append([view])
    watermark = max(view["at"] for view in views) - lateness
    all_visits = [(user, visit) for user, visits in by_user.items() for visit in visits]
    expected = [
        (user, visit[0]["at"], visit[-1]["at"], len(visit), visit[0]["page"])
        for user, visit in all_visits
        if visit[-1]["at"] + away <= watermark
    ]
    assert len(expected) < len(all_visits), "some visits should still be open"
    written = [
        (row["user"], _time(row["began"]), _time(row["ended"]), row["views"], row["landed_on"])
        for row in committed_rows(env, "visits")
    ]
    assert _sorted(written) == _sorted(expected)


def test_metrics_monitoring(spark: Any, braidlog_broker: Broker, tmp_path: Path) -> None:
    env = example_environment(spark, braidlog_broker, tmp_path, EVENTS)
    metrics_monitoring.run(env)

    minute = timedelta(minutes=1)
    samples = _decoded(metrics_monitoring.samples(EVENTS))
    by_minute = defaultdict(list)
    for sample in samples:
        by_minute[sample["host"], _floor(sample["at"], minute)].append(sample)
    watermark = max(sample["at"] for sample in samples) - timedelta(seconds=30)
    expected = []
    for (host, began), some in by_minute.items():
        if began + minute <= watermark:
            latencies = [sample["latency_ms"] for sample in some]
            failed = sum(sample["status"] >= 500 for sample in some)
            expected.append((host, began, len(some), sum(latencies) / len(some), max(latencies), failed))
    bad = [row for row in expected if row[3] > 250 or row[5] / row[2] > 0.1]
    assert 0 < len(bad) < len(expected)

    def figures(topic: str) -> list[tuple[Any, ...]]:
        columns = ("requests", "mean_ms", "slowest_ms", "failed")
        return _sorted(
            (row["host"], _time(row["minute"]), *(row[column] for column in columns))
            for row in committed_rows(env, topic)
        )

    assert figures("figures") == _sorted(expected)
    assert figures("alerts") == _sorted(bad)


def test_stream_processing(spark: Any, braidlog_broker: Broker, tmp_path: Path) -> None:
    env = example_environment(spark, braidlog_broker, tmp_path, EVENTS)
    stream_processing.run(env)

    products: dict[str, dict[str, Any]] = {}
    for event in stream_processing.products():
        assert event.key is not None
        products.pop(event.key, None)
        if event.value is not None:
            products[event.key] = json.loads(event.value)
    events = list(stream_processing.orders(EVENTS))
    orders = {order["id"]: order for order in _decoded(events)}
    assert len(orders) < len(_decoded(events)) < len(events), "some are sent twice, some are cut off"
    window = timedelta(minutes=10)
    watermark = max(order["at"] for order in orders.values()) - timedelta(minutes=2)
    sums: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0, 0])
    for order in orders.values():
        product = products.get(order["sku"], {"category": "unknown", "cents": 0})
        began = _floor(order["at"], window)
        if began + window <= watermark:
            sums[product["category"], began][0] += 1
            sums[product["category"], began][1] += order["quantity"] * product["cents"]
    written = [
        (row["category"], _time(row["began"]), row["orders"], row["revenue_cents"])
        for row in committed_rows(env, "revenue")
    ]
    assert _sorted(written) == _sorted((*key, *figures) for key, figures in sums.items())

    unreadable = {(event.key, event.value) for event in events if not (event.value or "").endswith("}")}
    letters = committed_records(env.bootstrap, f"{env.prefix}-dead-letters")
    assert {((letter.key or b"").decode(), (letter.value or b"").decode()) for letter in letters} == unreadable
    assert len(letters) == len(unreadable)
