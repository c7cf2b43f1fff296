from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.ids import parse_id
from braidlog.core.protocol_errors import (
    InconsistentTopicIdError,
    KafkaStorageError,
)
from braidlog.storage.dirs.log_dir_loader import LoadProgress, LogDirLoader
from braidlog.storage.dirs.log_directory import CLEAN_SHUTDOWN
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.offset_checkpoint_file import RECOVERY_POINTS, START_OFFSETS
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.settings import StorageSettings
from support.manager_fixture import NOW, TOPIC_ID, Broker, FailingFiles, append, content, crashed_without_room, tp

OTHER_ID = parse_id("BBECAwQFBgcICQoLDA0ODw")


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


def test_a_log_that_there_is_no_room_to_open_is_opened_later(tmp_path: Path) -> None:
    broker = crashed_without_room(tmp_path)
    manager = broker.manager
    assert manager.partitions == [tp("y")]
    assert manager.online_directories
    assert manager.registry.offline == {}
    with pytest.raises(KafkaStorageError, match="No space left"):
        manager.create(tp("x"), topic_id=TOPIC_ID, is_new=False)
    # What the checkpoints say of it must not be lost meanwhile.
    broker.run(manager.checkpoints.writes(START_OFFSETS))
    assert manager.directories[0].read_checkpoint(START_OFFSETS)[tp("x")] == 1
    broker.files.full.clear()
    log = manager.create(tp("x"), topic_id=TOPIC_ID, is_new=False)
    assert content(log) == [(1, b"2")]
    assert manager.partitions == [tp("y"), tp("x")]
    with pytest.raises(InconsistentTopicIdError):
        manager.create(tp("x"), topic_id=OTHER_ID)
    manager.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


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


def test_a_thousand_logs_load_quickly_in_the_directories_own_threads(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    for number in range(1000):
        broker.manager.create(tp("t", number), topic_id=TOPIC_ID)
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
    # The work of all threads: how long it takes is up to what else the machine does.
    started = time.process_time()
    report = manager.load(lambda progress: threads.add(threading.current_thread().name[0]))
    worked = time.process_time() - started
    assert (report.logs, report.clean) == (1000, True)
    assert threads == {"a", "b"}
    assert handles.open_count <= 100
    assert content(manager.log(tp("t", 7))) == [(0, b"v")]
    assert worked < 3
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
