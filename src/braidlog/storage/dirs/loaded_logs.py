"""Enters what start-up found in the data directories into the registry, settling what cannot both be true."""

from __future__ import annotations

import logging

from braidlog.core.errors import StorageFault
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.directory_names import DirectoryKind, marked_name
from braidlog.storage.dirs.log_dir_loader import LoadedDirectory, LoadReport
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_registry import LogRegistry
from braidlog.storage.log.unified_log import UnifiedLog

_log = logging.getLogger(__name__)


def register_loaded(registry: LogRegistry, loaded: LoadedDirectory, summary: LoadReport) -> list[StorageFault]:
    """What the disk refused on the way."""
    directory = loaded.directory
    faults: list[StorageFault] = []
    for partition, log in loaded.logs.items():
        try:
            _add(registry, partition, log, directory)
        except StorageFault as fault:
            faults.append(fault)
    registry.topic_ids.update(loaded.topic_ids)
    for partition, future in loaded.future_logs.items():
        registry.add_future(partition, future)
    registry.offline.update(loaded.broken)
    registry.unopened.update(loaded.unopened)
    for path in loaded.strays:
        _log.warning("%s is a stray replica that the cluster does not know; delete it when it is not needed", path)
    summary.logs += len(loaded.logs)
    summary.recovered_bytes += loaded.recovered_bytes
    summary.clean = summary.clean and directory.stopped_cleanly
    summary.broken.update(loaded.broken)
    summary.strays += loaded.strays
    summary.checkpoint_problems += directory.checkpoint_problems()
    return faults


def _add(registry: LogRegistry, partition: TopicPartition, log: UnifiedLog, directory: LogDirectory) -> None:
    """A crash while a moved replica took its place leaves two: the longer one stays, the other is set aside."""
    other = registry.logs.get(partition)
    if other is None:
        registry.add(partition, log, directory)
        return
    loser = log
    if log.log_end_offset > other.log_end_offset:
        registry.remove(partition)
        registry.add(partition, log, directory)
        loser = other
    name = marked_name(partition, DirectoryKind.STRAY)
    _log.warning("%s lies in two directories; setting the shorter one aside as %s", partition, name)
    try:
        loser.rename_dir(name)
    finally:
        loser.close(flush=False)
