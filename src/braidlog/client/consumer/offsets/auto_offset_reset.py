"""`auto.offset.reset`: where to start without an offset, or with one that the log does not have."""

from __future__ import annotations

import re
from typing import Final

from braidlog.client.errors import SettingError
from braidlog.core.clock import Clock

EARLIEST: Final = -2
LATEST: Final = -1

_DURATION: Final = (
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:\.\d{0,9})?)S)?)?"
)
_BY_DURATION: Final = "by_duration:"


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration of days, hours, minutes and seconds; raises ValueError."""
    found = re.fullmatch(_DURATION, text, re.IGNORECASE)
    parts = found.groupdict() if found else {}
    if not found or all(parts[name] is None for name in ("days", "hours", "minutes", "seconds")):
        raise ValueError(f"{text!r} is not a duration such as PT1H30M or P2D")
    total = int(parts["days"] or 0) * 86_400_000 + int(parts["hours"] or 0) * 3_600_000
    total += int(parts["minutes"] or 0) * 60_000 + int(float(parts["seconds"] or 0) * 1000)
    return -total if parts["sign"] == "-" else total


class AutoOffsetResetStrategy:
    """earliest, latest, none, or by_duration:PT1H (KIP-1106): that long before now."""

    def __init__(self, text: str) -> None:
        self.text = text
        lowered = text.strip().lower()
        self._target = {"earliest": EARLIEST, "latest": LATEST, "none": None}.get(lowered)
        self._before_ms: int | None = None
        if lowered.startswith(_BY_DURATION):
            try:
                self._before_ms = duration_ms(text.strip()[len(_BY_DURATION) :])
            except ValueError as problem:
                raise SettingError(f"auto.offset.reset={text!r}: {problem}") from None
            if self._before_ms < 0:
                raise SettingError(f"auto.offset.reset={text!r}: the duration must not be negative")
        elif lowered not in ("earliest", "latest", "none"):
            raise SettingError(f"auto.offset.reset={text!r}: use earliest, latest, none, or by_duration:PT1H")

    @property
    def is_none(self) -> bool:
        return self._target is None and self._before_ms is None

    def target(self, clock: Clock) -> int | None:
        """What to ask the log for: EARLIEST, LATEST or a timestamp; None when a poll has to raise instead."""
        if self._before_ms is not None:
            return max(clock.wall_ms() - self._before_ms, 0)
        return self._target
