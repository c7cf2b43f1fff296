"""Audit lines: what they say, and that a client cannot fill the log with them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from braidlog.broker.authorization.audit_log import MOST_KINDS, PERIOD_S, AuditLog
from braidlog.logging_setup import JsonFormatter, TextFormatter
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType

LINE = (
    "Principal = User:bob is Denied Operation = Write from host = 10.0.0.7 on resource = Topic:LITERAL:orders "
    "for request = PRODUCE"
)


class Timers:
    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self.calls.append((delay, call))

    def run(self) -> None:
        due, self.calls = self.calls, []
        for _, call in due:
            call()


def exchange() -> Exchange:
    return cast(Exchange, SimpleNamespace(channel=SimpleNamespace(peer_host="10.0.0.7"), api_key=0))


def deny(audit: AuditLog, name: str = "orders", who: str = "User:bob") -> None:
    audit.denied(exchange(), who, AclOperation.WRITE, AclResourceType.TOPIC, name)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "braidlog.authorizer")
    return caplog


def test_a_denial_is_a_line(lines: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    deny(AuditLog(timers.call_later))
    (record,) = lines.records
    assert (record.name, record.levelname, record.getMessage()) == ("braidlog.authorizer", "INFO", LINE)
    assert TextFormatter().format(record).endswith(f" INFO braidlog.authorizer: {LINE}")
    written = json.loads(JsonFormatter().format(record))
    assert {key: written[key] for key in ("logger", "principal", "operation", "host", "resource", "result")} == {
        "logger": "braidlog.authorizer", "principal": "User:bob", "operation": "Write", "host": "10.0.0.7",
        "resource": "Topic:LITERAL:orders", "result": "Denied",
    }  # fmt: skip
    assert written["request"] == "PRODUCE"
    timers.run()
    assert len(lines.records) == 1


def test_the_same_again_is_counted(lines: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    audit = AuditLog(timers.call_later)
    for _ in range(1_000):
        deny(audit)
    assert lines.messages == [LINE]
    assert [delay for delay, _ in timers.calls] == [PERIOD_S]
    timers.run()
    assert lines.messages == [LINE, f"{LINE}, 999 more times in the last 10 s"]
    # The next period begins with the next denial.
    assert timers.calls == []
    deny(audit)
    assert lines.messages[2:] == [LINE]


def test_lines_are_bounded(lines: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    audit = AuditLog(timers.call_later)
    for number in range(MOST_KINDS + 50):
        deny(audit, f"topic-{number}")
    assert len(lines.messages) == MOST_KINDS
    timers.run()
    assert lines.messages[MOST_KINDS:] == ["50 more denials in the last 10 s, of other kinds"]


def test_a_long_name_is_cut(lines: pytest.LogCaptureFixture) -> None:
    deny(AuditLog(Timers().call_later), "x" * 30_000)
    assert len(lines.messages[0]) < 500


def test_a_grant_is_a_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(Timers().call_later)
    caplog.set_level(logging.DEBUG, "braidlog.authorizer")
    audit.granted(exchange(), "User:ann", AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster")
    assert caplog.messages == [
        "Principal = User:ann is Allowed Operation = ClusterAction from host = 10.0.0.7 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = PRODUCE"
    ]
