"""Where a reset goes."""

from __future__ import annotations

import pytest

from braidlog.client.consumer.offsets.auto_offset_reset import EARLIEST, LATEST, AutoOffsetResetStrategy, duration_ms
from braidlog.client.errors import SettingError
from braidlog.core.clock import ManualClock


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H", 3_600_000),
        ("PT1H30M", 5_400_000),
        ("P2D", 172_800_000),
        ("P1DT0.5S", 86_400_500),
        ("pt15m", 900_000),
        ("-PT1M", -60_000),
        ("PT-1M", -60_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1X", "P1DT", "P1Y"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms(text)


def test_targets() -> None:
    clock = ManualClock(wall_ms=10_000_000)
    assert AutoOffsetResetStrategy("earliest").target(clock) == EARLIEST
    assert AutoOffsetResetStrategy("Latest").target(clock) == LATEST
    assert AutoOffsetResetStrategy("none").target(clock) is None
    assert AutoOffsetResetStrategy("none").is_none
    assert AutoOffsetResetStrategy("by_duration:PT1H").target(clock) == 6_400_000
    assert AutoOffsetResetStrategy("by_duration:P9D").target(clock) == 0
    assert not AutoOffsetResetStrategy("by_duration:PT0S").is_none


@pytest.mark.parametrize("text", ["", "smallest", "by_duration", "by_duration:1h", "by_duration:-PT1H"])
def test_what_is_no_policy(text: str) -> None:
    with pytest.raises(SettingError, match=r"auto\.offset\.reset"):
        AutoOffsetResetStrategy(text)
