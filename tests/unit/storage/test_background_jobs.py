from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.config.log_settings import COMPACT, LogSettings
from braidlog.core.types import TopicPartition
from braidlog.storage.background_jobs import BackgroundJobs
from braidlog.storage.cleaner.log_cleaner import LogCleaner
from braidlog.storage.cleaner.pass_runner import InlinePassRunner
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS, RECOVERY_POINTS
from braidlog.storage.dirs.replica_alter_log_dirs import ReplicaAlterLogDirs
from braidlog.storage.jobs import Job, run_inline
from braidlog.storage.settings import StorageSettings
from support.manager_fixture import NOW, Broker, append, content, tp

HOUR = 3_600_000


class Storage:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.cleaner = LogCleaner(broker.manager, lambda: InlinePassRunner(broker.files))
        self.background = BackgroundJobs(broker.manager, ReplicaAlterLogDirs(broker.manager), self.cleaner)

    def job(self, name: str) -> Job:
        return next(job for job in self.background.jobs() if job.name == name)

    def run(self, name: str) -> int:
        return run_inline(self.job(name).run(), self.broker.manager.failures.fail)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    settings = StorageSettings(log_flush_scheduler_interval_ms=1000)
    broker = Broker(tmp_path, settings=settings).start()
    yield Storage(broker)
    broker.manager.release()


def test_jobs_have_kafkas_intervals_and_first_delays(tmp_path: Path) -> None:
    storage = Storage(Broker(tmp_path))
    jobs = {job.name: (job.interval(), job.initial_delay) for job in storage.background.jobs()}
    assert jobs["log-retention"] == (300, 30)
    assert jobs["recovery-point-checkpoint"] == (60, 30)
    assert jobs["log-start-offset-checkpoint"] == (60, 30)
    assert jobs["high-watermark-checkpoint"] == (5, 5)
    assert jobs["log-cleaner-0"] == (15, 15)
    # Off until it is set, as in Kafka.
    assert "log-flusher" not in jobs


def test_retention_drops_old_segments_and_their_files_follow(storage: Storage) -> None:
    broker = storage.broker
    broker.topic_settings["x"] = LogSettings(retention_ms=HOUR, file_delete_delay_ms=5000)
    log = broker.manager.create(tp("x"))
    append(log, ("k", "old"), timestamp=NOW - 2 * HOUR)
    log.roll()
    append(log, ("k", "new"), timestamp=NOW)
    moved: list[TopicPartition] = []
    broker.manager.registry.on_log_start_moved.append(moved.append)
    storage.run("log-retention")
    assert log.log_start_offset == 1
    assert moved == [tp("x")]
    assert content(log) == [(1, b"new")]
    assert len(list(Path(log.directory).glob("*.deleted"))) > 0
    broker.clock.advance(5)
    storage.run("delete-logs")
    assert not list(Path(log.directory).glob("*.deleted"))


def test_a_log_that_has_expired_as_a_whole_goes_on_empty(storage: Storage) -> None:
    storage.broker.topic_settings["x"] = LogSettings(retention_ms=HOUR)
    log = storage.broker.manager.create(tp("x"))
    append(log, ("k", "old"), timestamp=NOW - 2 * HOUR)
    storage.run("log-retention")
    assert (log.log_start_offset, log.log_end_offset, log.size) == (1, 1, 0)
    append(log, ("k", "new"), timestamp=NOW)
    assert content(log) == [(1, b"new")]


def test_one_broken_directory_does_not_keep_others_from_their_retention(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    storage = Storage(broker)
    broker.topic_settings["x"] = LogSettings(retention_ms=HOUR)
    logs = [broker.manager.create(tp("x", number), directory=str(tmp_path / "ab"[number])) for number in range(2)]
    for log in logs:
        append(log, ("k", "old"), timestamp=NOW - 2 * HOUR)
        log.roll()
    broker.files.broken.append(str(tmp_path / "a"))
    storage.run("log-retention")
    assert broker.manager.partitions == [tp("x", 1)]
    assert logs[1].log_start_offset == 1
    broker.manager.release()


def test_the_flusher_syncs_what_is_due(storage: Storage) -> None:
    broker = storage.broker
    broker.topic_settings["x"] = LogSettings(flush_ms=10_000)
    due, never = broker.manager.create(tp("x")), broker.manager.create(tp("y"))
    for log in (due, never):
        append(log, ("k", "v"))
    broker.clock.advance(9)
    assert storage.run("log-flusher") == 0
    broker.clock.advance(2)
    assert storage.run("log-flusher") == 1
    assert (due.recovery_point, never.recovery_point) == (1, 0)
    assert storage.run("log-flusher") == 0


def test_checkpoints_say_what_the_logs_know(storage: Storage, tmp_path: Path) -> None:
    log = storage.broker.manager.create(tp("x"))
    append(log, ("k", "v"), ("k", "w"))
    log.sync_to(2)
    storage.run("recovery-point-checkpoint")
    storage.run("high-watermark-checkpoint")
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n1\nx 0 2\n"
    assert (tmp_path / HIGH_WATERMARKS).read_text() == "0\n1\nx 0 2\n"


def test_a_checkpoint_that_cannot_be_written_fails_its_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    broker.manager.create(tp("x"), directory=str(tmp_path / "a"))
    broker.files.broken.append(str(tmp_path / "a"))
    Storage(broker).run("recovery-point-checkpoint")
    assert [directory.path for directory in broker.manager.online_directories] == [str(tmp_path / "b")]
    broker.manager.release()


def test_long_rounds_let_others_run(storage: Storage) -> None:
    for number in range(201):
        storage.broker.manager.create(tp("t", number))
    assert list(storage.job("log-retention").run()) == [None]


def test_the_cleaner_is_a_job_too(storage: Storage) -> None:
    broker = storage.broker
    broker.topic_settings["x"] = LogSettings(cleanup_policy=(COMPACT,), min_cleanable_dirty_ratio=0.1)
    log = broker.manager.create(tp("x"))
    append(log, ("k", "1"), ("k", "2"))
    log.roll()
    storage.run("log-cleaner-0")
    assert content(log) == [(1, b"2")]
