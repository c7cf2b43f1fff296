from __future__ import annotations

import os
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.storage.archive.exporting import TopicFacts, export_topic
from braidlog.storage.archive.importing import read_archive
from braidlog.storage.archive.manifest import is_archived
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.inspected_files import ID, produce
from support.manager_fixture import NOW, Broker, tp


def refused(data: Path, archive: Path, topic: str = "x", facts: TopicFacts | None = None) -> str:
    with pytest.raises(UserError) as refusal:
        export_topic(topic, [str(data)], archive, facts or TopicFacts())
    assert not archive.exists()
    assert not any(name.endswith(".tmp") for name in os.listdir(archive.parent))
    return str(refusal.value)


def test_an_archive_says_what_it_holds(data: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    facts = TopicFacts({"retention.ms": "-1"}, 2, {0: 7, 1: 2})
    made = export_topic("x", [str(data)], tmp_path / "archive", facts, lambda done, total, path: steps.append(path))
    assert read_archive(tmp_path / "archive") == made
    assert (made.topic, made.topic_id, made.configs) == ("x", ID, {"retention.ms": "-1"})
    assert (made.cluster_id, made.broker_id) == ("cluster", 1)
    first, second = made.partitions
    assert (first.start_offset, first.end_offset, first.high_watermark) == (0, 14, 14)
    assert (first.leader_epoch, first.max_producer_id) == (7, 5000)
    assert (second.end_offset, second.leader_epoch, second.max_producer_id) == (0, 2, -1)
    assert all(is_archived(file.name) for each in made.partitions for file in each.files)
    assert not list((tmp_path / "archive").rglob("*.snapshot"))
    assert len(steps) == 2


def test_a_broker_that_runs_or_died_is_refused(data: Path, tmp_path: Path) -> None:
    broker = Broker(data).start()
    assert "in use by" in refused(data, tmp_path / "archive")
    broker.crash()
    assert "was not stopped cleanly" in refused(data, tmp_path / "archive")
    assert "is no data directory" in refused(tmp_path, tmp_path / "archive")


def test_what_is_not_all_there_is_refused(data: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    assert "no partition of topic 'z'" in refused(data, archive, "z")
    assert "has 3 partitions, and [2] are not in" in refused(data, archive, facts=TopicFacts({}, 3))
    assert "the broker's own" in refused(data, archive, "__consumer_offsets")
    segment = sorted((data / "x-0").glob("*.log"))[0]
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    assert "is damaged" in refused(data, archive)


def test_an_open_transaction_is_named(data: Path, tmp_path: Path) -> None:
    broker = Broker(data).start()
    log = broker.manager.registry.logs[tp("x")]
    fields = {"producer_id": 77, "producer_epoch": 1, "base_sequence": 0, "transactional": True}
    produce(log, build_batch([Record(key=b"t", value=b"open", timestamp=NOW)], **fields))  # type: ignore[arg-type]
    broker.manager.close()
    assert "open transaction of producer 77, from offset 14" in refused(data, tmp_path / "archive")


def test_nothing_is_overwritten(data: Path, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    with pytest.raises(UserError, match="exists: name a directory that does not"):
        export_topic("x", [str(data)], tmp_path / "archive", TopicFacts())
