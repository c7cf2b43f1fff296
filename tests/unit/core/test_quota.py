"""Rates, buckets and throttle times, at times that the test says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.quota import DEFAULT_WINDOW, MOST_THROTTLE_MS, QuotaWindow, SampledRate, TokenBucket, rounded

steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5_000_000)), min_size=1, max_size=60)
windows = st.builds(QuotaWindow, st.integers(1, 12), st.sampled_from((500, 1000, 2000)))


def test_the_first_request_is_measured_over_all_samples_but_one() -> None:
    rate = SampledRate(DEFAULT_WINDOW)
    rate.record(5_000_000, 1_000)
    assert rate.window_ms(1_000) == 10_000
    assert rate.per_second(1_000) == 500_000
    # Half a second later as much of the current sample is over.
    assert rate.window_ms(1_500) == 10_500


def test_a_throttle_brings_the_rate_down_to_the_quota() -> None:
    rate = SampledRate(DEFAULT_WINDOW)
    rate.record(15_000_000, 0)
    assert rate.throttle_ms(1_000_000, 0) == 5_000
    assert rate.throttle_ms(1_500_000, 0) == 0
    assert rate.throttle_ms(3_000_000, 0) == 0


def test_samples_are_forgotten_when_their_last_event_is_a_window_ago() -> None:
    rate = SampledRate(QuotaWindow(2, 1000))
    rate.record(10, 0)
    rate.record(10, 900)
    assert rate.per_second(2_899) * rate.window_ms(2_899) / 1000 == pytest.approx(20)
    assert rate.per_second(2_900) == 0


def test_what_is_taken_back_was_never_there() -> None:
    rate = SampledRate(DEFAULT_WINDOW)
    rate.record(100, 0)
    rate.record(5_000, 10)
    rate.record(-5_000, 10)
    assert rate.per_second(10) == pytest.approx(100 * 1000 / rate.window_ms(10))


def test_a_quota_of_nothing_holds_for_a_window() -> None:
    rate = SampledRate(DEFAULT_WINDOW)
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == 11_000
    assert SampledRate(DEFAULT_WINDOW).throttle_ms(0, 0) == 0


def test_the_longest_throttle_fits_the_field() -> None:
    rate = SampledRate(DEFAULT_WINDOW)
    rate.record(1e18, 0)
    assert rate.throttle_ms(1, 0) == MOST_THROTTLE_MS


@given(windows, steps)
def test_a_rate_is_what_was_recorded_in_its_window(window: QuotaWindow, steps: list[tuple[int, int]]) -> None:
    """Samples that overlap the window count as a whole, so the sum is bounded by one sample more."""
    rate = SampledRate(window)
    events: list[tuple[int, int]] = []
    now = 0
    for pause, value in steps:
        now += pause
        rate.record(value, now)
        events.append((now, value))
        total = rate.per_second(now) * rate.window_ms(now) / 1000
        within = sum(each for at, each in events if now - at < window.length_ms)
        at_most = sum(each for at, each in events if now - at < window.length_ms + window.sample_ms)
        assert within - 1 <= total <= at_most + 1
        assert rate.window_ms(now) >= max(window.complete_ms, 1)


@given(
    st.builds(QuotaWindow, st.integers(2, 12), st.sampled_from((500, 1000, 2000))),
    steps,
    st.integers(1_000, 10_000_000),
)
def test_who_waits_as_told_has_no_more_than_the_quota_and_one_window(
    window: QuotaWindow, steps: list[tuple[int, int]], quota: int
) -> None:
    rate = SampledRate(window)
    now, sent, largest = 0, 0, 0
    for pause, value in steps:
        now += pause
        rate.record(value, now)
        sent += value
        largest = max(largest, value)
        throttle = rate.throttle_ms(quota, now)
        assert throttle >= 0
        if throttle == 0:
            assert rate.per_second(now) <= quota * 1.001 + 1
        now += throttle
        assert sent <= quota * (now + window.length_ms + window.sample_ms) / 1000 + largest + 1


def test_a_bucket_lets_a_burst_through_and_goes_below_zero_once() -> None:
    bucket = TokenBucket(DEFAULT_WINDOW, 2.0, 0)
    assert bucket.tokens == 22
    bucket.spend(30, 0)
    assert bucket.throttle_ms(0) == 4_000
    assert bucket.throttle_ms(3_000) == 1_000
    assert bucket.throttle_ms(4_000) == 0
    assert bucket.throttle_ms(100_000) == 0
    assert bucket.tokens == 22


def test_a_bucket_changes_its_size_and_keeps_what_it_holds() -> None:
    bucket = TokenBucket(DEFAULT_WINDOW, 2.0, 0)
    bucket.change_quota(1.0, 0)
    assert bucket.tokens == 11
    bucket.spend(11, 0)
    bucket.change_quota(10.0, 1_000)
    assert bucket.tokens == 1
    empty = TokenBucket(DEFAULT_WINDOW, 0.0, 0)
    empty.spend(1, 0)
    assert empty.throttle_ms(60_000) == 11_000


@given(steps, st.floats(0.1, 100))
def test_no_more_is_spent_than_the_burst_and_what_comes_in(steps: list[tuple[int, int]], quota: float) -> None:
    """As those do that ask first: only with tokens left, but then for any number."""
    bucket = TokenBucket(DEFAULT_WINDOW, quota, 0)
    now, spent, largest = 0, 0, 0
    for pause, value in steps:
        now += pause
        if bucket.throttle_ms(now) == 0:
            bucket.spend(value, now)
            spent += value
            largest = max(largest, value)
    assert spent <= quota * (DEFAULT_WINDOW.length_ms + now) / 1000 + largest + 1


def test_halves_are_rounded_up() -> None:
    assert [rounded(value) for value in (0.4, 0.5, 1.5, 2.5)] == [0, 1, 2, 3]
