"""What happens when a data directory fails: its logs go offline, and nothing else does.

A directory without room has not failed. That is only logged, and what could not be written is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.protocol_errors import KafkaStorageError
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_registry import LogRegistry
from braidlog.storage.dirs.text_files import disk_faults

_log = logging.getLogger(__name__)

_DISK_FULL_LOG_INTERVAL_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class LogDirFailure:
    path: str
    reason: str
    # Partitions whose current replica is now offline, in the order they were opened.
    partitions: tuple[TopicPartition, ...]


class LogDirFailureHandler:
    def __init__(self, registry: LogRegistry, clock: Clock) -> None:
        # Called on the owning thread after the logs of a failed directory were dropped.
        self.on_directory_failed: list[Callable[[LogDirFailure], None]] = []
        self._registry = registry
        self._clock = clock
        # When a directory that has no room is logged again.
        self._next_disk_full_log: dict[str, float] = {}

    def fail(self, fault: StorageFault) -> None:
        """Take the directory of `fault` offline with its logs; raises FatalError if it was the last one."""
        if is_disk_full(fault):
            self._log_disk_full(fault)
            return
        self.take_offline(self._registry.directory_at(fault.directory), fault)
        self._registry.require_one_directory()

    @contextmanager
    def reporting(self, directory: str, doing: str) -> Iterator[None]:
        """A block that a fault of the disk ends: the directory fails, and its caller goes on."""
        try:
            with disk_faults(directory, doing):
                yield
        except StorageFault as fault:
            self.fail(fault)

    @contextmanager
    def refusing(self, directory: str, doing: str) -> Iterator[None]:
        """A block that a fault of the disk ends: the directory fails, and the caller gets KAFKA_STORAGE_ERROR."""
        try:
            with disk_faults(directory, doing):
                yield
        except StorageFault as fault:
            self.fail(fault)
            raise KafkaStorageError(str(fault)) from fault

    def _log_disk_full(self, fault: StorageFault) -> None:
        """Once in a while: producers try again many times a second, and the broker's log needs room as well."""
        now = self._clock.monotonic()
        if now >= self._next_disk_full_log.get(fault.directory, 0.0):
            self._next_disk_full_log[fault.directory] = now + _DISK_FULL_LOG_INTERVAL_S
            _log.error("%s; free some space, or lower retention.ms or retention.bytes", fault)

    def take_offline(self, directory: LogDirectory, fault: StorageFault) -> None:
        """Also if it is the last one."""
        if not directory.is_online:
            return
        _log.error("%s; its partitions are offline until it is repaired and the broker restarted", fault)
        for partition in self._registry.logs_in(directory):
            self._registry.notify_log_removal(partition)
        lost, futures = self._registry.take_offline(directory, fault)
        for log in [*lost.values(), *futures]:
            log.close(flush=False)
        failure = LogDirFailure(directory.path, fault.reason, tuple(lost))
        for listener in self.on_directory_failed:
            listener(failure)
