"""Indexes of a segment that starts at offset 1000, over files of a test's directory."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings

from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.offset_index import OffsetIndex
from braidlog.storage.index.time_index import TimeIndex

BASE = 1000
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def offset_index(root: Path, name: str = "i", max_bytes: int = 1 << 20) -> OffsetIndex:
    files = OsFiles()
    return OffsetIndex(files, HandlePool(files, 4), f"{root}/{name}", BASE, max_bytes)


def time_index(root: Path, name: str = "t", max_bytes: int = 1 << 20) -> TimeIndex:
    files = OsFiles()
    return TimeIndex(files, HandlePool(files, 4), f"{root}/{name}", BASE, max_bytes)
