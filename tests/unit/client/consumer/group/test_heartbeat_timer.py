"""When heartbeats are due, and what is too late."""

from __future__ import annotations

from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer


def beats() -> HeartbeatTimer:
    return HeartbeatTimer(interval_s=3.0, session_s=10.0, max_poll_s=60.0, now=100.0)


def test_the_next_is_due_an_interval_after_the_last() -> None:
    times = beats()
    assert times.due_at() == 103.0
    assert times.wait_s(101.0) == 2.0
    times.sent(104.0)
    assert times.due_at() == 107.0
    assert times.wait_s(200.0) == 0.0


def test_a_failure_brings_the_next_try_forward() -> None:
    times = beats()
    times.sent(103.0)
    times.failed(103.5, 0.1)
    assert times.due_at() == 103.6
    times.sent(103.6)
    assert times.due_at() == 106.6


def test_a_session_ends_without_answers() -> None:
    times = beats()
    times.sent(109.0)
    assert not times.is_session_over(110.0)
    assert times.is_session_over(110.5)
    times.heard(110.5)
    assert not times.is_session_over(120.0)


def test_a_program_has_to_poll() -> None:
    times = beats()
    assert not times.is_poll_overdue(160.0)
    assert times.is_poll_overdue(160.1)
    times.sent(159.0)
    assert times.wait_s(159.5) < 1.0, "the end of the poll's time is waited for, too"
    times.polled(160.0)
    assert not times.is_poll_overdue(200.0)
