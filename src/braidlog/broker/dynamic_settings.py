"""The broker's settings as they are now: a value that is needed at run time is read here, not copied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from braidlog.config.broker import BrokerSettings
from braidlog.config.unsupported_settings import unprotected, without_effect
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidRequestError
from braidlog.storage.cleaner.cleaning_request import CleanerConfig
from braidlog.storage.settings import RECOVERY_THREADS, StorageSettings

log = logging.getLogger("braidlog.settings")


class DynamicBrokerSettings:
    def __init__(self, settings: BrokerSettings) -> None:
        self.current = settings
        self._listeners: list[Callable[[BrokerSettings, list[str]], None]] = []
        self._checks: list[Callable[[BrokerSettings, list[str]], None]] = []

    def on_change(self, listener: Callable[[BrokerSettings, list[str]], None]) -> None:
        """`listener(settings, changed keys)` is called after each change."""
        self._listeners.append(listener)

    def on_check(self, check: Callable[[BrokerSettings, list[str]], None]) -> None:
        """`check(settings, changed keys)` raises UserError where the settings could not be taken over."""
        self._checks.append(check)

    def note_bound(self, key: str, address: str) -> None:
        """Where something listens that was to pick a port, or nowhere: who describes the settings is told that."""
        settings = self.current
        self.current = BrokerSettings(
            {**settings.static, key: address},
            dynamic_default=settings.dynamic_default,
            dynamic_broker=settings.dynamic_broker,
        )

    def check_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Before a change is stored: raises InvalidRequestError, as Kafka answers what a broker cannot apply."""
        changed, _ = self.current.with_dynamic(default=default, broker=broker)
        keys = self.current.changed_keys(changed)
        for check in self._checks if keys else ():
            try:
                check(changed, keys)
            except UserError as problem:
                raise InvalidRequestError(str(problem)) from problem

    def apply_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Take over what the cluster says of all brokers and of this one."""
        changed, complaints = self.current.with_dynamic(default=default, broker=broker)
        before = unprotected(self.current)
        for complaint in (*complaints, *(line for line in unprotected(changed) if line not in before)):
            log.warning("dynamic setting: %s", complaint)
        keys = self.current.changed_keys(changed)
        self.current = changed
        if keys:
            log.info("settings changed at run time: %s", ", ".join(keys))
            idle = [key for key in without_effect(changed) if key in keys]
            if idle:
                log.info("of these without effect here (docs/SETTINGS.md says why): %s", ", ".join(idle))
            for listener in self._listeners:
                listener(changed, keys)


def storage_settings(settings: BrokerSettings) -> StorageSettings:
    """The broker's settings as storage wants them."""
    number = settings.get_int
    recovery_threads = RECOVERY_THREADS
    if settings.is_set("num.recovery.threads.per.data.dir"):
        recovery_threads = number("num.recovery.threads.per.data.dir")
    return StorageSettings(
        num_recovery_threads_per_data_dir=recovery_threads,
        log_retention_check_interval_ms=number("log.retention.check.interval.ms"),
        log_flush_scheduler_interval_ms=number("log.flush.scheduler.interval.ms"),
        log_flush_offset_checkpoint_interval_ms=number("log.flush.offset.checkpoint.interval.ms"),
        log_flush_start_offset_checkpoint_interval_ms=number("log.flush.start.offset.checkpoint.interval.ms"),
        replica_high_watermark_checkpoint_interval_ms=number("replica.high.watermark.checkpoint.interval.ms"),
        log_segment_delete_delay_ms=number("log.segment.delete.delay.ms"),
        log_initial_task_delay_ms=number("log.initial.task.delay.ms"),
        producer_id_expiration_ms=number("producer.id.expiration.ms"),
        producer_id_expiration_check_interval_ms=number("producer.id.expiration.check.interval.ms"),
        log_cleaner_enable=settings.get_bool("log.cleaner.enable"),
        log_cleaner_threads=number("log.cleaner.threads"),
        log_cleaner_backoff_ms=number("log.cleaner.backoff.ms"),
        cleaner_config=CleanerConfig(
            dedupe_bytes=number("log.cleaner.dedupe.buffer.size"),
            load_factor=settings.get_float("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes=number("log.cleaner.io.buffer.size"),
            max_io_bytes_per_second=settings.get_float("log.cleaner.io.max.bytes.per.second"),
        ),
        replica_alter_log_dirs_io_max_bytes_per_second=number("replica.alter.log.dirs.io.max.bytes.per.second"),
    )
