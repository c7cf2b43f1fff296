from __future__ import annotations

import os
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.storage.archive.exporting import TopicFacts, export_topic
from braidlog.storage.archive.importing import read_archive, stage_import
from braidlog.storage.archive.manifest import Manifest
from braidlog.storage.dirs.offset_checkpoint_file import RECOVERY_POINTS, OffsetCheckpointFile
from braidlog.storage.files import OsFiles
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.inspected_files import produce
from support.manager_fixture import NOW, Broker, append, content, tp

NEW_ID = bytes(range(32, 48))


@pytest.fixture
def archive(data: Path, tmp_path: Path) -> Path:
    export_topic("x", [str(data)], tmp_path / "archive", TopicFacts({}, 2, {0: 7, 1: 2}))
    return tmp_path / "archive"


@pytest.fixture
def manifest(archive: Path) -> Manifest:
    return read_archive(archive)


def test_records_are_there_and_producers_are_not(data: Path, archive: Path, manifest: Manifest, target: Path) -> None:
    stage_import(archive, manifest, target, "renamed", NEW_ID).publish()
    source, broker = Broker(data).start(), Broker(target).start()
    logs = broker.manager.registry.logs
    assert sorted(map(str, logs)) == ["renamed-0", "renamed-1", "y-0"]
    log, original = logs[tp("renamed")], source.manager.registry.logs[tp("x")]
    assert content(log) == content(original)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (14, 14, 14)
    assert log.leader_epochs.entries == original.leader_epochs.entries
    assert broker.manager.topic_id(tp("renamed")) == NEW_ID
    assert original.producer_state.producers
    assert not log.producer_state.producers
    # A producer of this cluster that has the same id begins as it likes.
    fields = {"producer_id": 5000, "producer_epoch": 0, "base_sequence": 0}
    produce(log, build_batch([Record(key=b"n", value=b"new", timestamp=NOW)], **fields))  # type: ignore[arg-type]
    append(logs[tp("renamed", 1)], ("a", "b"))
    broker.crash()
    again = Broker(target).start()
    assert again.manager.registry.logs[tp("renamed")].log_end_offset == 15
    assert again.manager.registry.logs[tp("renamed")].producer_state.producers[5000].epoch == 0
    assert content(again.manager.registry.logs[tp("renamed", 1)]) == [(0, b"b")]
    again.manager.close()
    source.manager.close()


def test_what_was_staged_or_published_is_discarded(archive: Path, manifest: Manifest, target: Path) -> None:
    before = sorted(os.listdir(target))
    checkpoint = OffsetCheckpointFile(OsFiles(), str(target), RECOVERY_POINTS)
    offsets = checkpoint.read()
    staged = stage_import(archive, manifest, target, "x", NEW_ID)
    assert sum(name.endswith("-delete") for name in os.listdir(target)) == 2
    staged.discard()
    assert sorted(os.listdir(target)) == before
    staged = stage_import(archive, manifest, target, "x", NEW_ID)
    staged.publish()
    assert (target / "x-0").is_dir()
    staged.discard()
    assert (sorted(os.listdir(target)), checkpoint.read()) == (before, offsets)


def test_what_a_crash_left_is_removed_by_the_next_start(archive: Path, manifest: Manifest, target: Path) -> None:
    stage_import(archive, manifest, target, "x", NEW_ID)
    broker = Broker(target).start()
    assert list(map(str, broker.manager.registry.logs)) == ["y-0"]
    broker.manager.close()


def test_a_topic_that_is_there_is_kept(archive: Path, manifest: Manifest, target: Path) -> None:
    with pytest.raises(UserError, match="y-0 is there already"):
        stage_import(archive, manifest, target, "y", NEW_ID)


def test_an_archive_that_changes_meanwhile_is_noticed(archive: Path, manifest: Manifest, target: Path) -> None:
    before = sorted(os.listdir(target))
    segment = sorted((archive / "x-0").glob("*.log"))[0]
    segment.write_bytes(segment.read_bytes()[:-1])
    with pytest.raises(UserError, match="changed while it was read"):
        stage_import(archive, manifest, target, "x", NEW_ID)
    assert sorted(os.listdir(target)) == before


def test_no_file_of_an_archive_may_lead_elsewhere(archive: Path, tmp_path: Path) -> None:
    segment = sorted((archive / "x-0").glob("*.log"))[0]
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is no file"):
        read_archive(archive)
