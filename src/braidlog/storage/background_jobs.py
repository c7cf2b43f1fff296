"""The recurring jobs of a broker's storage, each with its own interval and first delay, under Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from braidlog.config.log_settings import MAX_LONG
from braidlog.core.types import TopicPartition
from braidlog.storage.cleaner.log_cleaner import LogCleaner
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS
from braidlog.storage.dirs.replica_alter_log_dirs import ReplicaAlterLogDirs
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.jobs import Finish, Job, Work
from braidlog.storage.log.retention import plan_retention
from braidlog.storage.log.unified_log import UnifiedLog

_log = logging.getLogger(__name__)

# Logs looked at before others get their turn.
_STRIDE: Final = 200
_DELETION_POLL_MS: Final = 1000
_MOVE_POLL_MS: Final = 500


class BackgroundJobs:
    def __init__(self, manager: LogManager, moves: ReplicaAlterLogDirs, cleaner: LogCleaner | None) -> None:
        self._manager = manager
        self._moves = moves
        self._cleaner = cleaner

    def jobs(self) -> list[Job]:
        settings = self._manager.settings
        first = settings.log_initial_task_delay_ms / 1000
        jobs = [
            Job("log-retention", _every(settings.log_retention_check_interval_ms), first, self.delete_old_segments),
            Job(
                "recovery-point-checkpoint",
                _every(settings.log_flush_offset_checkpoint_interval_ms),
                first,
                lambda: iter(self._manager.checkpoints.writes(RECOVERY_POINTS)),
            ),
            Job(
                "log-start-offset-checkpoint",
                _every(settings.log_flush_start_offset_checkpoint_interval_ms),
                first,
                lambda: iter(self._manager.checkpoints.writes(START_OFFSETS)),
            ),
            Job(
                "high-watermark-checkpoint",
                _every(settings.replica_high_watermark_checkpoint_interval_ms),
                settings.replica_high_watermark_checkpoint_interval_ms / 1000,
                lambda: iter(self._manager.checkpoints.writes(HIGH_WATERMARKS)),
            ),
            Job("delete-logs", _every(_DELETION_POLL_MS), _DELETION_POLL_MS / 1000, self._manager.deletion.due),
            Job("replica-moves", _every(_MOVE_POLL_MS), _MOVE_POLL_MS / 1000, self._moves.run),
            Job(
                "producer-expiration",
                _every(settings.producer_id_expiration_check_interval_ms),
                settings.producer_id_expiration_check_interval_ms / 1000,
                self.expire_producers,
            ),
        ]
        if settings.log_flush_scheduler_interval_ms < MAX_LONG:
            jobs.append(Job("log-flusher", _every(settings.log_flush_scheduler_interval_ms), first, self.flush))
        return jobs + self.cleaner_jobs()

    def cleaner_jobs(self) -> list[Job]:
        """One for each of log.cleaner.threads; should those become fewer, the jobs of the last ones do nothing."""
        settings = self._manager.settings
        if self._cleaner is None or not settings.log_cleaner_enable:
            return []
        return [self._cleaner_job(self._cleaner, number) for number in range(settings.log_cleaner_threads)]

    def _cleaner_job(self, cleaner: LogCleaner, number: int) -> Job:
        def backoff() -> float:
            return self._manager.settings.log_cleaner_backoff_ms / 1000

        return Job(f"log-cleaner-{number}", backoff, backoff(), lambda: cleaner.run(number))

    def delete_old_segments(self) -> Iterator[Work | None]:
        """Drop what has outlived its retention; the removals themselves wait in the deletion queue."""
        for count, (partition, log) in enumerate(self._manager.items(), 1):
            if self._manager.get(partition) is log and not self._is_being_cleaned(partition):
                self._delete_old_segments_of(partition, log)
            if count % _STRIDE == 0:
                yield None

    def _delete_old_segments_of(self, partition: TopicPartition, log: UnifiedLog) -> None:
        manager = self._manager
        directory = manager.registry.directory_of(partition).path
        with manager.failures.reporting(directory, f"apply the retention of {partition}"):
            plan = plan_retention(
                log.segments,
                log.settings,
                log.log_start_offset,
                log.high_watermark,
                log.log_end_offset,
                manager.clock.wall_ms(),
            )
            if plan.held_by_future_timestamp is not None:
                _log.debug(
                    "%s: the segment at %d is kept, its newest timestamp lies in the future",
                    partition,
                    plan.held_by_future_timestamp,
                )
            if plan.is_empty or log.has_staged:
                return
            deleted = log.delete_segments(plan.count)
            _log.info("%s: deleting segments: %s", partition, ", ".join(plan.reasons))
            manager.deletion.remove_segments_later(partition, log, deleted)
            for listener in manager.registry.on_log_start_moved:
                listener(partition)

    def flush(self) -> Iterator[Work | None]:
        """Sync the logs whose flush.ms has passed since they were last synced."""
        now_ms = self._manager.clock.wall_ms()
        for count, (partition, log) in enumerate(self._manager.items(), 1):
            due = log.settings.flush_ms < MAX_LONG and now_ms - log.last_flush_ms >= log.settings.flush_ms
            if due and log.recovery_point < log.log_end_offset and self._manager.get(partition) is log:
                directory = self._manager.registry.directory_of(partition).path
                yield Work(directory, f"flush {partition}", _Sync(directory, log, log.log_end_offset))
            elif count % _STRIDE == 0:
                yield None

    def expire_producers(self) -> Iterator[Work | None]:
        now_ms = self._manager.clock.wall_ms()
        for count, (_, log) in enumerate(self._manager.items(), 1):
            log.producer_state.remove_expired(now_ms)
            if count % _STRIDE == 0:
                yield None

    def _is_being_cleaned(self, partition: TopicPartition) -> bool:
        return self._cleaner is not None and self._cleaner.is_cleaning(partition)


def _every(interval_ms: int) -> Callable[[], float]:
    """The interval of a setting that needs a restart to change."""
    return lambda: interval_ms / 1000


class _Sync:
    def __init__(self, directory: str, log: UnifiedLog, offset: int) -> None:
        self._directory = directory
        self._log = log
        self._offset = offset

    def __call__(self) -> Finish | None:
        with disk_faults(self._directory, "sync"):
            self._log.sync_to(self._offset)
        return None
