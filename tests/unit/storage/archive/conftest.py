"""The data directory of a broker that was stopped, with two partitions of a topic, and one that has nothing yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from support.inspected_files import ID, produce
from support.manager_fixture import NOW, Broker, append, tp


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Partition 0 has two segments and a transaction that was aborted, partition 1 has nothing."""
    broker = Broker(tmp_path / "data").start()
    log = broker.manager.create(tp("x"), topic_id=ID)
    for segment in range(2):
        for number in range(5):
            append(log, (f"key{number}", f"value {segment} {number}"))
        fields = {"producer_id": 5000, "producer_epoch": 1, "base_sequence": segment, "transactional": True}
        produce(log, build_batch([Record(key=b"t", value=b"in doubt", timestamp=NOW)], **fields))  # type: ignore[arg-type]
        produce(
            log, build_end_txn_marker(commit=segment == 1, producer_id=5000, producer_epoch=1, timestamp=NOW), marker=1
        )
        if segment == 0:
            log.roll()
    broker.manager.create(tp("x", 1), topic_id=ID)
    broker.manager.close()
    return tmp_path / "data"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    broker = Broker(tmp_path / "target").start()
    append(broker.manager.create(tp("y"), topic_id=bytes(range(16, 32))), ("a", "b"))
    broker.manager.close()
    return tmp_path / "target"
