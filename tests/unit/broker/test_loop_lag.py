from __future__ import annotations

from braidlog.broker.loop_lag import LoopLag


def test_the_longest_stall_is_kept_for_a_minute_and_not_for_ever() -> None:
    lag = LoopLag()
    lag.note(100.0, 0.2)
    lag.note(100.1, -0.001)
    assert (lag.last, lag.longest) == (0.0, 0.2)
    lag.note(161.0, 0.05)
    assert lag.longest == 0.2
    lag.note(222.0, 0.01)
    assert lag.longest == 0.05


def test_a_stall_of_long_ago_is_forgotten_though_nothing_was_noted_meanwhile() -> None:
    lag = LoopLag()
    lag.note(100.0, 0.2)
    lag.note(1_000.0, 0.01)
    assert lag.longest == 0.01
