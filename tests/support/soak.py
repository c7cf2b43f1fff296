"""How much a soak does: `BRAIDLOG_SOAK` multiplies its kills, lives and seeds; 1, the default, takes about an hour."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("BRAIDLOG_SOAK", "1"))


def scaled(count: int) -> int:
    return max(1, round(count * SCALE))
