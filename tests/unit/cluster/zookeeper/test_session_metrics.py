from __future__ import annotations

from braidlog.cluster.zookeeper.session_metrics import SessionMetrics, SessionState
from braidlog.metrics import MetricsRegistry


def test_the_page_names_the_one_state_that_the_session_is_in() -> None:
    registry = MetricsRegistry()
    metrics = SessionMetrics(registry)
    metrics.state = SessionState.EXPIRED
    states = [line for line in registry.text().splitlines() if "sessionstate{" in line]
    assert len(states) == len(SessionState)
    assert [line for line in states if line.endswith(" 1")] == [line for line in states if "EXPIRED" in line]


def test_changes_are_counted_under_kafkas_names() -> None:
    registry = MetricsRegistry()
    metrics = SessionMetrics(registry)
    metrics.expires.value += 1
    assert "kafka_server_sessionexpirelistener_zookeeperexpires_total 1" in registry.text()
