from __future__ import annotations

import logging

import pytest

from braidlog.client.broker_errors import broker_error
from braidlog.client.errors import AuthenticationFailed, NoConnection, RequestTimeout
from braidlog.client.problem_log import CLUSTER, ProblemLog
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import KafkaStorageError, UnknownTopicOrPartitionError

GONE = NoConnection("no broker answers at host:9092 (Connection refused)")


class Client:
    """One that fails and recovers as a test wants it, on a clock of its own."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "braidlog.client")
        self.clock = ManualClock()
        self.clock.advance(1000.0)
        self.problems = ProblemLog("consumer", self.clock.monotonic)
        self._caplog = caplog

    def fails_for(self, seconds: float, subject: str, problem: Exception, part_of: str = CLUSTER) -> None:
        """Tries twice a second."""
        for _ in range(int(seconds * 2)):
            self.problems.failed(subject, problem, part_of=part_of)
            self.clock.advance(0.5)

    def said(self) -> list[tuple[str, str]]:
        """What was logged since the last look."""
        lines = [(each.levelname, each.getMessage()) for each in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def client(caplog: pytest.LogCaptureFixture) -> Client:
    return Client(caplog)


def test_one_warning_then_every_thirty_seconds_and_one_line_when_it_is_over(client: Client) -> None:
    client.fails_for(70, CLUSTER, GONE)
    assert client.said() == [
        ("WARNING", f"consumer: failing for {seconds} s, trying again: {GONE}") for seconds in (2, 32, 62)
    ]
    client.problems.recovered(CLUSTER)
    client.problems.recovered(CLUSTER)
    assert client.said() == [("INFO", "consumer: works again after 70 s: the cluster answers")]
    assert client.problems.is_empty


def test_what_passes_within_two_seconds_is_not_mentioned(client: Client) -> None:
    for _ in range(10):
        client.fails_for(1.5, "topic t", GONE)
        client.problems.recovered("topic t")
    assert client.said() == []


def test_what_comes_and_goes_is_told_as_seldom_as_what_stays(client: Client) -> None:
    for _ in range(12):
        client.fails_for(4, "topic t", GONE)
        client.problems.recovered("topic t")
        client.clock.advance(1.0)
    warnings = [line for level, line in client.said() if level == "WARNING"]
    assert len(warnings) == 2


def test_an_attempt_that_took_long_has_lasted_long_enough(client: Client) -> None:
    began = client.problems.now()
    client.clock.advance(10.0)
    client.problems.failed(CLUSTER, GONE, since=began)
    assert client.said() == [("WARNING", f"consumer: failing for 10 s, trying again: {GONE}")]


@pytest.mark.parametrize("problem", [AuthenticationFailed("wrong password"), RequestTimeout("no answer within 30 s")])
def test_what_does_not_pass_or_was_waited_for_is_told_at_once(client: Client, problem: Exception) -> None:
    client.problems.failed(CLUSTER, problem)
    assert client.said() == [("WARNING", f"consumer: failing: {problem}")]


def test_a_failure_of_long_ago_is_another_one(client: Client) -> None:
    """A topic that was left and is wanted again an hour later has not failed for an hour."""
    client.problems.failed("topic t", GONE)
    client.clock.advance(3600.0)
    client.problems.failed("topic t", GONE)
    assert client.said() == []


def test_without_brokers_nothing_else_is_told(client: Client) -> None:
    for _ in range(10):
        client.fails_for(0.5, CLUSTER, GONE)
        client.fails_for(0.5, "group g", NoConnection("the connection to host:9092 broke"))
    assert [line for _, line in client.said() if "group" in line] == []
    # And right afterwards it has its own two seconds.
    client.problems.recovered(CLUSTER)
    client.said()
    client.fails_for(1.5, "group g", GONE)
    assert client.said() == []
    client.fails_for(1.5, "group g", GONE)
    assert client.said() == [("WARNING", f"consumer: failing for 2 s, trying again: group g: {GONE}")]


def test_a_part_is_silent_while_the_whole_fails(client: Client) -> None:
    missing = broker_error(UnknownTopicOrPartitionError.code, "topic t")
    for _ in range(10):
        client.fails_for(0.5, "topic t", missing)
        client.fails_for(0.5, "t-0", missing, part_of="topic t")
    ((level, line),) = client.said()
    assert level == "WARNING"
    assert line.startswith("consumer: failing for 2 s, trying again: topic t: it does not exist; ")
    assert line.endswith("(UNKNOWN_TOPIC_OR_PARTITION)")


def test_one_line_speaks_for_all_that_fail_for_the_same_reason(client: Client) -> None:
    parts = [f"t-{number}" for number in range(300)]
    for _ in range(20):
        for part in parts:
            client.problems.failed(part, broker_error(KafkaStorageError.code, part), part_of="topic t")
        client.clock.advance(0.5)
    ((_, line),) = client.said()
    assert "t-0: the disk under it failed" in line
    for part in parts:
        client.problems.recovered(part)
    ((level, line),) = client.said()
    assert (level, line) == ("INFO", "consumer: works again after 10 s: t-299")
