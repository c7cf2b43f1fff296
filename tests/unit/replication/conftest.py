"""A partition that this broker leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import Partition
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import UnifiedLog


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    files = OsFiles()
    made = Partition("orders", 0, b"i" * 16, 1, TopicMetrics())
    log = made.log = UnifiedLog.open(
        str(tmp_path / "orders-0"),
        TopicPartition("orders", 0),
        LogSettings(min_insync_replicas=2),
        files=files,
        handles=HandlePool(files),
        clock=ManualClock(),
    )
    made.update_leader_and_isr(1, 3, (1,), (1,))
    yield made
    log.close(flush=False)
