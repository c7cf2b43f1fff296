"""A partition that a broker closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from support.inspected_files import ID, produce
from support.manager_fixture import NOW, Broker, append, tp


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Two segments of twenty batches each, an aborted transaction in the first, closed by a clean stop."""
    broker = Broker(tmp_path)
    broker.topic_settings["x"] = LogSettings(index_interval_bytes=200)
    log = broker.start().manager.create(tp("x"), topic_id=ID)
    for segment in range(2):
        for number in range(18):
            append(log, (f"key{number}", f"value {segment} {number}"), (None, "\x00\xff"), timestamp=NOW + number)
        fields = {"producer_id": 5, "producer_epoch": 1, "base_sequence": segment, "transactional": True}
        produce(log, build_batch([Record(key=b"t", value=b"in doubt", timestamp=NOW)], **fields))  # type: ignore[arg-type]
        produce(
            log, build_end_txn_marker(commit=segment == 1, producer_id=5, producer_epoch=1, timestamp=NOW), marker=1
        )
        if segment == 0:
            log.roll()
    broker.manager.close()
    return tmp_path / "x-0"
