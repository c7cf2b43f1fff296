from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.errors import FatalError, StorageFault, UserError
from braidlog.core.ids import parse_id
from braidlog.core.protocol_errors import (
    InconsistentTopicIdError,
    KafkaStorageError,
    LogDirNotFoundError,
    UnknownTopicOrPartitionError,
)
from braidlog.storage.dirs.log_dir_failures import LogDirFailure
from braidlog.storage.dirs.log_dir_loader import LoadProgress, LogDirLoader
from braidlog.storage.dirs.log_directory import CLEAN_SHUTDOWN
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.offset_checkpoint_file import RECOVERY_POINTS, START_OFFSETS
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.settings import StorageSettings
from support.manager_fixture import NOW, Broker, FailingFiles, append, content, tp

ID_1 = parse_id("AAECAwQFBgcICQoLDA0ODw")
ID_2 = parse_id("BBECAwQFBgcICQoLDA0ODw")


def test_a_clean_restart_brings_everything_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "d").start()
    log = broker.manager.create(tp("orders"), topic_id=ID_1)
    append(log, ("k", "v"), ("k", "w"))
    broker.manager.close(broker_epoch=5)
    assert (tmp_path / "d" / CLEAN_SHUTDOWN).read_text() == '{"version":0,"brokerEpoch":5}'

    again = Broker(tmp_path / "d")
    again.manager.open()
    assert again.manager.stored_cluster_id() == "cluster"
    assert again.manager.stored_node_id() == 1
    again.manager.claim("cluster", 1)
    report = again.manager.load()
    assert (report.logs, report.clean, report.recovered_bytes) == (1, True, 0)
    assert again.manager.directories[0].previous_broker_epoch == 5
    log = again.manager.log(tp("orders"))
    assert content(log) == [(0, b"v"), (1, b"w")]
    assert log.high_watermark == 2
    assert again.manager.topic_id(tp("orders")) == ID_1
    assert not (tmp_path / "d" / CLEAN_SHUTDOWN).exists()
    again.manager.close()


def test_after_a_crash_only_what_lies_past_the_recovery_point_is_read(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "d").start()
    log = broker.manager.create(tp("orders"))
    append(log, ("k", "v" * 1000))
    log.roll()
    log.sync_to(1)
    append(log, ("k", "w"))
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    broker.crash()

    again = Broker(tmp_path / "d")
    again.manager.open()
    seen: list[LoadProgress] = []
    report = again.manager.load(seen.append)
    assert not report.clean
    assert 0 < report.recovered_bytes < 500
    assert (seen[-1].logs_done, seen[-1].logs_total) == (1, 1)
    assert seen[-1].recovered_bytes == report.recovered_bytes
    assert any(progress.partition == tp("orders") for progress in seen)
    assert content(again.manager.log(tp("orders")))[1] == (1, b"w")
    again.manager.close()


def test_new_partitions_go_where_fewest_are(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    manager = broker.manager
    manager.create(tp("x", 0), directory=str(tmp_path / "a"))
    manager.create(tp("x", 1), directory=str(tmp_path / "a"))
    for number in range(2, 6):
        manager.create(tp("x", number))
    assert [directory.partition_count for directory in manager.directories] == [3, 3]
    manager.prefer_directory(tp("y"), str(tmp_path / "b") + "/")
    manager.create(tp("y"))
    assert (tmp_path / "b" / "y-0").is_dir()
    with pytest.raises(LogDirNotFoundError):
        manager.create(tp("z"), directory="/elsewhere")
    manager.close()


def test_creating_twice_gives_the_same_log(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    assert manager.create(tp("x")) is manager.create(tp("x"))
    assert len(manager) == 1
    manager.close()


def test_a_log_of_an_earlier_topic_is_refused(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    manager.create(tp("x"), topic_id=ID_1)
    with pytest.raises(InconsistentTopicIdError):
        manager.create(tp("x"), topic_id=ID_2)
    manager.mark_stray(tp("x"))
    assert len(list(tmp_path.glob("x-0.*-stray"))) == 1
    manager.create(tp("x"), topic_id=ID_2)
    manager.close()
    report = Broker(tmp_path)
    report.manager.open()
    assert len(report.manager.load().strays) == 1
    report.manager.close()


def test_an_unknown_partition_is_told_from_an_offline_one(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.log(tp("x"))
    assert manager.get(tp("x")) is None
    manager.close()


def test_a_deleted_log_is_gone_at_once_and_removed_later(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    manager = broker.manager
    log = manager.create(tp("x"))
    append(log, ("k", "v"))
    piece = log.read(0, 100, 1).slice
    assert piece is not None
    manager.delete(tp("x"))
    assert manager.get(tp("x")) is None
    assert len(list(tmp_path.glob("x-0.*-delete"))) == 1
    assert len(piece.read()) > 0
    broker.clock.advance(59)
    assert broker.run(list(manager.deletion.due())) == 0
    broker.clock.advance(1)
    assert broker.run(list(manager.deletion.due())) == 1
    assert not list(tmp_path.glob("x-0*"))
    manager.close()


def test_what_was_to_be_deleted_before_a_stop_is_deleted_after_it(tmp_path: Path) -> None:
    first = Broker(tmp_path).start()
    first.manager.create(tp("x"))
    first.manager.delete(tp("x"))
    first.manager.close()
    again = Broker(tmp_path).start()
    assert len(again.manager) == 0
    again.run(list(again.manager.deletion.due()))
    assert not list(tmp_path.glob("x-0*"))
    again.manager.close()


def test_a_topic_made_again_starts_from_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    log = broker.manager.create(tp("x"))
    append(log, *[("k", "v")] * 10)
    log.increment_log_start_offset(5)
    log.sync_to(10)
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    broker.run(broker.manager.checkpoints.writes(START_OFFSETS))
    assert "x 0 5" in (tmp_path / START_OFFSETS).read_text()
    broker.manager.delete(tp("x"))
    append(broker.manager.create(tp("x")), ("k", "new"))
    broker.crash()
    again = Broker(tmp_path).start()
    log = again.manager.log(tp("x"))
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)
    again.manager.close()


def test_logs_are_created_and_opened_with_the_settings_of_their_topic(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=12345)
    for _ in range(2):
        broker = Broker(tmp_path)
        broker.topic_settings["x"] = settings
        manager = broker.start().manager
        logs = [manager.create(tp("x", number)) for number in range(3)]
        assert [log.settings for log in logs] == [settings] * 3
        assert manager.create(tp("y")).settings == LogSettings()
        manager.close()


def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    first = Broker(tmp_path / "a").start()
    second = Broker(tmp_path / "b", tmp_path / "a")
    with pytest.raises(UserError, match="in use"):
        second.manager.open()
    first.manager.close()
    # The refused one has let go of the directory that it had got.
    Broker(tmp_path / "b").start().manager.close()


def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    Broker(tmp_path).start().manager.close()
    other = Broker(tmp_path)
    other.manager.open()
    with pytest.raises(UserError, match="belongs to cluster cluster"):
        other.manager.claim("another", 1)
    other.crash()


def test_a_failed_directory_takes_only_its_own_logs(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    manager = broker.manager
    manager.create(tp("here"), directory=str(tmp_path / "a"))
    lost = manager.create(tp("gone"), directory=str(tmp_path / "b"))
    reported: list[LogDirFailure] = []
    left: list[object] = []
    manager.failures.on_directory_failed.append(reported.append)
    manager.registry.on_log_removal.append(left.append)

    broker.files.broken.append(str(tmp_path / "b"))
    with pytest.raises(StorageFault) as caught:
        append(lost, ("k", "v"))
    manager.failures.fail(caught.value)
    assert [(failure.path, failure.partitions) for failure in reported] == [(str(tmp_path / "b"), (tp("gone"),))]
    assert left == [tp("gone")]
    append(manager.log(tp("here")), ("k", "v"))
    with pytest.raises(KafkaStorageError, match="gone-0 is offline"):
        manager.log(tp("gone"))
    with pytest.raises(KafkaStorageError, match="offline"):
        manager.create(tp("gone"))
    assert set(manager.registry.offline) == {tp("gone")}

    # New partitions avoid it, partitions that may lie there are not made anew.
    manager.create(tp("new"))
    assert manager.registry.directory_of(tp("new")).path == str(tmp_path / "a")
    manager.create(tp("newer"), directory=str(tmp_path / "b"))
    assert manager.registry.directory_of(tp("newer")).path == str(tmp_path / "a")
    with pytest.raises(KafkaStorageError, match="may lie in a data directory that is offline"):
        manager.create(tp("unsure"), is_new=False)
    facts = [directory.describe() for directory in manager.directories]
    assert [(fact.path, fact.failure is None) for fact in facts] == [
        (str(tmp_path / "a"), True),
        (str(tmp_path / "b"), False),
    ]
    # A second fault of the same directory is not reported again.
    manager.failures.fail(caught.value)
    assert len(reported) == 1
    manager.close()
    assert (tmp_path / "a" / CLEAN_SHUTDOWN).exists()
    assert not (tmp_path / "b" / CLEAN_SHUTDOWN).exists()


def test_a_full_disk_is_not_a_failed_one(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    log = broker.manager.create(tp("x"))
    append(log, ("k", "v"))
    broker.files.full.append(str(tmp_path))
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    with pytest.raises(KafkaStorageError, match="No space left"):
        broker.manager.create(tp("y"))
    assert broker.manager.online_directories
    assert content(broker.manager.log(tp("x"))) == [(0, b"v")]
    broker.files.full.clear()
    broker.manager.create(tp("y"))
    broker.manager.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def crashed_without_room(tmp_path: Path) -> Broker:
    """Started after a crash: x cannot be opened for want of room, y can."""
    before = Broker(tmp_path).start()
    for name in ("x", "y"):
        log = before.manager.create(tp(name), topic_id=ID_1)
        append(log, ("k", "1"))
        append(log, ("k", "2"))
        log.increment_log_start_offset(1)
    before.run(before.manager.checkpoints.writes(START_OFFSETS))
    before.crash()
    broker = Broker(tmp_path)
    broker.files.full.append(str(tmp_path / "x-0"))
    return broker.start()


def test_a_log_that_there_is_no_room_to_open_is_opened_later(tmp_path: Path) -> None:
    broker = crashed_without_room(tmp_path)
    manager = broker.manager
    assert manager.partitions == [tp("y")]
    assert manager.online_directories
    assert manager.registry.offline == {}
    with pytest.raises(KafkaStorageError, match="No space left"):
        manager.create(tp("x"), topic_id=ID_1, is_new=False)
    # What the checkpoints say of it must not be lost meanwhile.
    broker.run(manager.checkpoints.writes(START_OFFSETS))
    assert manager.directories[0].read_checkpoint(START_OFFSETS)[tp("x")] == 1
    broker.files.full.clear()
    log = manager.create(tp("x"), topic_id=ID_1, is_new=False)
    assert content(log) == [(1, b"2")]
    assert manager.partitions == [tp("y"), tp("x")]
    with pytest.raises(InconsistentTopicIdError):
        manager.create(tp("x"), topic_id=ID_2)
    manager.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_stop_without_a_log_that_could_not_be_opened_is_not_clean(tmp_path: Path) -> None:
    broker = crashed_without_room(tmp_path)
    broker.manager.close()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    again = Broker(tmp_path).start()
    assert content(again.manager.log(tp("x"))) == [(1, b"2")]
    again.manager.close()


def test_a_log_that_could_not_be_opened_can_be_deleted(tmp_path: Path) -> None:
    broker = crashed_without_room(tmp_path)
    broker.manager.delete(tp("x"))
    broker.files.full.clear()
    assert content(broker.manager.create(tp("x"))) == []
    broker.clock.advance(120)
    broker.run(broker.manager.deletion.due())
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["x-0", "y-0"]
    broker.manager.close()


def test_a_deleted_log_that_there_is_no_room_to_rename_does_not_come_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    append(broker.manager.create(tp("x")), ("k", "old"))
    broker.files.no_room_for_names = True
    broker.manager.delete(tp("x"))
    assert broker.manager.online_directories
    with pytest.raises(KafkaStorageError, match="No space left"):
        broker.manager.create(tp("x"))
    broker.files.no_room_for_names = False
    assert content(broker.manager.create(tp("x"))) == []
    broker.manager.close()


def test_a_deleted_log_is_renamed_as_soon_as_there_is_room(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    append(broker.manager.create(tp("x")), ("k", "old"))
    broker.files.no_room_for_names = True
    broker.manager.delete(tp("x"))
    broker.run(broker.manager.deletion.due())
    assert (tmp_path / "x-0").exists()
    broker.files.no_room_for_names = False
    broker.run(broker.manager.deletion.due())
    assert not (tmp_path / "x-0").exists()
    broker.clock.advance(120)
    broker.run(broker.manager.deletion.due())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    broker.manager.close()


def test_a_clean_shutdown_marker_that_there_is_no_room_to_remove_goes_later(tmp_path: Path) -> None:
    before = Broker(tmp_path).start()
    append(before.manager.create(tp("x")), ("k", "v"))
    before.manager.close()
    broker = Broker(tmp_path)
    broker.files.no_room_for_names = True
    broker.start()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    assert content(broker.manager.log(tp("x"))) == [(0, b"v")]
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    assert broker.manager.online_directories
    broker.files.no_room_for_names = False
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    broker.crash()


def test_the_last_directory_gone_is_fatal(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    broker.manager.failures.fail(StorageFault(str(tmp_path / "a"), "it smokes"))
    with pytest.raises(FatalError, match=r"it smokes.*it burns"):
        broker.manager.failures.fail(StorageFault(str(tmp_path / "b" / "x-0"), "it burns"))
    broker.crash()


def test_a_directory_that_fails_at_start_is_left_out(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    broker.manager.create(tp("here"), directory=str(tmp_path / "a"))
    broker.manager.create(tp("gone"), directory=str(tmp_path / "b"))
    broker.manager.close()
    for place in ("b", "b/gone-0"):
        again = Broker(tmp_path / "a", tmp_path / "b")
        if place == "b":
            again.files.broken.append(str(tmp_path / place))
            again.manager.open()
        else:
            again.manager.open()
            again.files.broken.append(str(tmp_path / place))
        again.manager.claim("cluster", 1)
        again.manager.load()
        assert again.manager.partitions == [tp("here")]
        assert [directory.path for directory in again.manager.online_directories] == [str(tmp_path / "a")]
        again.manager.close()


def test_no_directory_at_start_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match="nothing is left to serve"):
        Broker(tmp_path / "file").manager.open()


def test_bad_lists_of_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="twice"):
        Broker(tmp_path, Path(f"{tmp_path}/"))
    with pytest.raises(UserError, match=r"log\.dirs"):
        Broker()


def test_a_replica_in_two_directories_is_settled_for_the_longer(tmp_path: Path) -> None:
    for name, count in (("a", 1), ("b", 3)):
        broker = Broker(tmp_path / name).start()
        append(broker.manager.create(tp("x")), *[("k", "v")] * count)
        broker.manager.close()
    both = Broker(tmp_path / "a", tmp_path / "b").start()
    assert both.manager.log(tp("x")).log_end_offset == 3
    assert len(list((tmp_path / "a").glob("x-0.*-stray"))) == 1
    assert [directory.partition_count for directory in both.manager.directories] == [0, 1]
    both.manager.close()


def test_what_is_no_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "notes-1").write_text("a file")
    broker = Broker(tmp_path).start()
    assert len(broker.manager) == 0
    broker.manager.close()
    assert (tmp_path / "notes-1").read_text() == "a file"


def test_facts_of_directories(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    log = manager.create(tp("x"))
    append(log, ("k", "v"))
    manager.create(tp("y"))
    (directory,) = manager.directories
    facts = directory.describe()
    assert facts.total_bytes > facts.usable_bytes > 0
    (replica,) = manager.registry.replicas_in(directory, {tp("x")})
    assert (replica.partition, replica.size, replica.offset_lag, replica.is_future) == (tp("x"), log.size, 0, False)
    assert len(list(manager.registry.replicas_in(directory))) == 2
    manager.close()


def test_a_thousand_logs_load_quickly_in_the_directories_own_threads(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    for number in range(1000):
        broker.manager.create(tp("t", number), topic_id=ID_1)
    append(broker.manager.log(tp("t", 7)), ("k", "v"))
    broker.manager.close()

    files = FailingFiles()
    handles = HandlePool(files, 100)
    pools = {str(tmp_path / name): ThreadPoolExecutor(2, thread_name_prefix=name) for name in ("a", "b")}
    manager = LogManager(
        list(pools),
        settings_of=lambda topic: LogSettings(),
        executor_of=lambda path: pools[path],
        files=files,
        handles=handles,
        clock=ManualClock(NOW),
    )
    threads: set[str] = set()
    manager.open()
    started = time.monotonic()
    report = manager.load(lambda progress: threads.add(threading.current_thread().name[0]))
    took = time.monotonic() - started
    assert (report.logs, report.clean) == (1000, True)
    assert threads == {"a", "b"}
    assert handles.open_count <= 100
    assert content(manager.log(tp("t", 7))) == [(0, b"v")]
    assert took < 3
    manager.release()
    for pool in pools.values():
        pool.shutdown()


@pytest.mark.parametrize("threads", [1, 3])
def test_after_a_crash_so_many_logs_are_recovered_at_a_time_as_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    broker = Broker(tmp_path).start()
    for name in "abcde":
        append(broker.manager.create(tp(name)), ("k", "v"))
    broker.crash()
    inside, most, begun = 0, 0, 0
    lock = threading.Lock()
    together = threading.Barrier(threads)

    class Counting(LogDirLoader):
        def open_log(self, *args: Any, **options: Any) -> UnifiedLog:
            nonlocal inside, most, begun
            with lock:
                inside += 1
                most = max(most, inside)
                begun += 1
                is_first = begun <= threads
            if is_first:
                # The first ones wait for each other: that many are at work at once.
                together.wait(30)
            try:
                return super().open_log(*args, **options)
            finally:
                with lock:
                    inside -= 1

    pools: dict[str, ThreadPoolExecutor] = {}
    monkeypatch.setattr("braidlog.storage.dirs.log_manager.LogDirLoader", Counting)
    manager = LogManager(
        [str(tmp_path)],
        settings_of=lambda topic: LogSettings(),
        executor_of=lambda name: pools.setdefault(name, ThreadPoolExecutor(2)),
        files=FailingFiles(),
        handles=HandlePool(FailingFiles()),
        clock=ManualClock(NOW),
        settings=StorageSettings(num_recovery_threads_per_data_dir=threads),
    )
    manager.open()
    report = manager.load()
    assert (report.logs, report.clean) == (5, False)
    assert most == threads
    manager.close()
    for pool in pools.values():
        pool.shutdown()
