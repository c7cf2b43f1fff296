"""A checkpoint as a query leaves it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.query_offsets import OFFSETS


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    place = tmp_path / "state" / "clean"
    for log, text in (("offsets", OFFSETS), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
        (place / log).mkdir(parents=True)
        (place / log / "4").write_text(text)
        os.utime(place / log / "4", (1000.0, 1000.0))
    (place / "metadata").write_text('{"id":"59f0"}')
    return place
