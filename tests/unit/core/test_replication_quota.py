"""The throttle of replication, at times that the test says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.clock import ManualClock
from braidlog.core.quota import QuotaWindow
from braidlog.core.replication_quota import UNLIMITED, ReplicationQuota, is_listed


def limited(rate: int, window: QuotaWindow | None = None) -> tuple[ReplicationQuota, ManualClock]:
    clock = ManualClock()
    clock.advance(100)
    quota = ReplicationQuota(clock) if window is None else ReplicationQuota(clock, window)
    quota.limit = rate
    return quota, clock


def test_without_a_limit_everything_is_let_through() -> None:
    quota, _ = limited(UNLIMITED)
    for _ in range(3):
        assert quota.allowance() > 2**40
        quota.record(2**40)
    assert quota.wait_s() == 0


def test_a_rate_of_nothing_stops_all() -> None:
    quota, clock = limited(0)
    clock.advance(1000)
    assert quota.allowance() == 0
    assert quota.wait_s() > 0


def test_what_went_over_is_waited_for() -> None:
    quota, clock = limited(1000)
    assert quota.allowance() == 1000
    quota.record(4000)
    assert quota.allowance() == 0
    assert quota.wait_s() == 0.5, "it looks again, since the rate may change"
    clock.advance(2.75)
    assert quota.allowance() == 0
    clock.advance(0.25)
    assert quota.allowance() == 100, "no less than is worth a request"
    clock.advance(0.5)
    assert quota.allowance() == 500
    clock.advance(60)
    assert quota.allowance() == 1000, "only one sample is made up for"


def test_a_longer_sample_makes_up_for_more() -> None:
    quota, _ = limited(1000, QuotaWindow(3, 5000))
    assert quota.allowance() == 5000


def test_a_new_rate_counts_at_once() -> None:
    quota, clock = limited(1000)
    quota.record(3000)
    quota.limit = 1_000_000
    clock.advance(2)
    quota.record(1_000_000)
    clock.advance(1)
    assert quota.allowance() > 0


def test_a_debt_is_paid_at_a_higher_rate() -> None:
    quota, clock = limited(1000)
    quota.record(1_001_000)
    clock.advance(500)
    assert quota.allowance() == 0
    quota.limit = 100_000
    clock.advance(4.9)
    assert quota.allowance() == 0
    clock.advance(0.2)
    assert quota.allowance() > 0
    quota.record(1_000_000)
    quota.limit = UNLIMITED
    clock.advance(0.001)
    quota.limit = 1000
    assert quota.allowance() > 0, "without a throttle nothing is owed"


def test_a_debt_does_not_grow_with_a_lower_rate() -> None:
    quota, clock = limited(1_000_000)
    quota.record(3_000_000)
    quota.limit = 1000
    clock.advance(2.1)
    assert quota.allowance() > 0
    quota.record(5000)
    quota.limit = 0
    quota.limit = 1000
    assert quota.allowance() == 0, "nor is it forgotten by stopping"


def test_the_measured_rate_is_that_of_the_time_since_it_began() -> None:
    quota, clock = limited(1000)
    assert quota.byte_rate() == 0
    quota.record(500)
    assert quota.byte_rate() == 500, "at least one sample"
    for _ in range(8):
        clock.advance(0.5)
        quota.record(500)
    assert quota.byte_rate() == pytest.approx(1000, rel=0.2)
    clock.advance(12)
    assert quota.byte_rate() == 0


@given(
    rate=st.integers(1_000, 10_000_000),
    piece=st.integers(1, 2_000_000),
    looks=st.lists(st.integers(1, 500), min_size=1, max_size=20),
)
def test_the_rate_holds_whatever_the_size_of_pieces(rate: int, piece: int, looks: list[int]) -> None:
    """Who copies a piece whenever it may, looking at these times, in milliseconds, is at the rate within 10 %."""
    quota, clock = limited(rate)
    began = clock.monotonic()
    copied = 0
    # Long enough that the first second, and the last piece, weigh little.
    for_s = 20 + 20 * piece / rate
    step = 0
    while clock.monotonic() - began < for_s:
        while (allowance := quota.allowance()) > 0:
            size = max(min(piece, allowance), 1) if piece < rate else piece
            quota.record(size)
            copied += size
            if step > 5_000:
                return
            step += 1
        clock.advance(looks[step % len(looks)] / 1000)
        step += 1
    measured = copied / (clock.monotonic() - began)
    assert 0.9 * rate <= measured <= 1.1 * rate


@pytest.mark.parametrize(
    ("text", "listed"),
    [("", False), ("*", True), ("3:1", True), ("3:2,3:1", True), ("3:2", False), ("1:3", False), (" 03:1 ,", True)],
)
def test_which_replicas_a_topic_names(text: str, listed: bool) -> None:
    assert is_listed(tuple(text.split(",")), 3, 1) is listed
