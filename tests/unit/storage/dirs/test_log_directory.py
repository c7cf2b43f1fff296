from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.errors import StorageFault, UserError
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.directory_lock import NoLock, lock_directory
from braidlog.storage.dirs.log_directory import CLEAN_SHUTDOWN, LogDirectory
from braidlog.storage.dirs.lost_replicas import LostReplica
from braidlog.storage.dirs.offset_checkpoint_file import CLEANER_OFFSETS, RECOVERY_POINTS
from braidlog.storage.files import OsFiles
from braidlog.testing.simulated.disk import MemoryDisk
from braidlog.testing.simulated.memory_files import MemoryFiles

A = TopicPartition("a", 0)
B = TopicPartition("b", 0)


def opened(path: Path) -> LogDirectory:
    directory = LogDirectory(str(path), OsFiles(), lock_directory)
    directory.open()
    return directory


def test_claimed_once_and_recognised_later(tmp_path: Path) -> None:
    directory = opened(tmp_path / "data")
    assert directory.properties is None
    directory.claim("cluster", 1, 0)
    directory.release()
    again = opened(tmp_path / "data")
    assert again.properties is not None
    assert (again.properties.cluster_id, again.properties.node_id) == ("cluster", 1)
    with pytest.raises(UserError, match="belongs to cluster"):
        again.claim("other", 1, 0)
    again.release()


def test_an_unreadable_meta_properties_says_what_to_do(tmp_path: Path) -> None:
    for version, advice in (("none", "restore the file"), ("9", "start that one again")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "meta.properties").write_text(f"version={version}\n")
        with pytest.raises(UserError, match=advice):
            opened(tmp_path / version)


def test_the_mark_of_a_clean_stop_is_kafkas_and_counts_once(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.mark_clean_shutdown(42)
    assert (tmp_path / CLEAN_SHUTDOWN).read_text() == '{"version":0,"brokerEpoch":42}'
    assert directory.take_clean_shutdown()
    assert directory.previous_broker_epoch == 42
    assert not directory.take_clean_shutdown()
    directory.release()


@pytest.mark.parametrize("content", ["", "{}", "[1]", "not json"])
def test_the_mark_of_an_older_broker_has_no_epoch(tmp_path: Path, content: str) -> None:
    (tmp_path / CLEAN_SHUTDOWN).write_text(content)
    directory = opened(tmp_path)
    assert directory.take_clean_shutdown()
    assert directory.previous_broker_epoch is None
    directory.release()


def test_a_new_log_does_not_inherit_a_namesakes_offsets(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.write_checkpoint(RECOVERY_POINTS, {A: 10, B: 20})
    directory.write_checkpoint(CLEANER_OFFSETS, {A: 5})
    directory.forget(A)
    directory.release()
    again = opened(tmp_path)
    assert again.read_checkpoint(RECOVERY_POINTS) == {B: 20}
    assert again.read_checkpoint(CLEANER_OFFSETS) == {}
    again.forget(B)
    assert again.read_checkpoint(RECOVERY_POINTS) == {}
    again.release()


def test_an_unchanged_checkpoint_is_not_written_again(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.write_checkpoint(RECOVERY_POINTS, {A: 10})
    (tmp_path / RECOVERY_POINTS).unlink()
    directory.write_checkpoint(RECOVERY_POINTS, {A: 10})
    assert not (tmp_path / RECOVERY_POINTS).exists()
    directory.write_checkpoint(RECOVERY_POINTS, {A: 11})
    assert (tmp_path / RECOVERY_POINTS).exists()
    directory.release()


def test_a_file_in_the_place_of_the_directory_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StorageFault):
        opened(tmp_path / "data")


def test_what_the_cluster_counted_on_is_kept_by_a_directory_that_is_formatted(tmp_path: Path) -> None:
    lost = [LostReplica(A, bytes(range(16)))]
    directory = opened(tmp_path / "data")
    assert not directory.is_formatted
    directory.claim("cluster", 1, 0, lost)
    directory.release()
    again = opened(tmp_path / "data")
    assert again.is_formatted
    assert again.lost_replicas == lost
    # One that has been there is not asked.
    again.claim("cluster", 1, 0, [LostReplica(B, bytes(16))])
    assert again.lost_replicas == lost
    again.release()
    (tmp_path / "data" / "lost-replicas").write_text("nonsense\n")
    with pytest.raises(UserError, match="correct or remove the line"):
        opened(tmp_path / "data")


def test_what_the_cluster_counted_on_is_known_where_there_is_no_room_to_write_it_down() -> None:
    """Else the broker would lead with the empty log of a replaced disk as soon as that has room."""
    disk = MemoryDisk(Random(1), ManualClock())
    lost = [LostReplica(A, bytes(range(16)))]
    directory = LogDirectory("/data", MemoryFiles(disk), lambda path: NoLock())
    directory.open()
    disk.capacity = disk.used
    with pytest.raises(StorageFault, match="No space left"):
        directory.claim("cluster", 1, 0, lost)
    assert directory.lost_replicas == lost
    assert not directory.is_formatted
    disk.repair()
    again = LogDirectory("/data", MemoryFiles(disk), lambda path: NoLock())
    again.open()
    again.claim("cluster", 1, 0, lost)
    assert again.lost_replicas == lost
