from __future__ import annotations

import re
from pathlib import Path

import braidlog
from braidlog.core.version import VERSION

ROOT = Path(__file__).parents[3]


def test_there_is_one_version() -> None:
    assert braidlog.__version__ == VERSION
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()
