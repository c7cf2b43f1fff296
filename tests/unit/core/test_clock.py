from __future__ import annotations

import time

from braidlog.core.clock import ManualClock, SystemClock


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(1_000)
    assert (clock.wall_ms(), clock.monotonic()) == (1_000, 0.0)
    clock.advance(1.5)
    assert (clock.wall_ms(), clock.monotonic()) == (2_500, 1.5)


def test_the_system_clock_is_the_systems() -> None:
    clock = SystemClock()
    assert abs(clock.wall_ms() - time.time() * 1000) < 60_000
    before = clock.monotonic()
    assert before <= clock.monotonic() <= time.monotonic()
