"""One version, also on the front page."""

from __future__ import annotations

import re

import braidlog
from braidlog.core.version import VERSION


def test_the_front_page_shows_it() -> None:
    assert braidlog.__version__ == VERSION
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
