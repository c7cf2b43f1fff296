"""Follows `/feature`: which levels the cluster has finalised, as every broker learns them by a watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from braidlog.cluster import paths, records
from braidlog.cluster.records import BadRecordError, FeaturesRecord
from braidlog.cluster.store import (
    CoordinationStore,
    NoNodeError,
    SessionExpiredError,
    StoreConnectionError,
    StoreFailedError,
    WatchEvent,
)
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.broker")

_RETRY_S: Final = 1.0
# The epoch of features that nobody has written.
NO_EPOCH: Final = -1

Listener = Callable[[Mapping[str, int]], None]


class FinalizedFeatures:
    """The levels by name, and their epoch, which is the version of the node as in Kafka."""

    def __init__(self, store: CoordinationStore, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks
        self.levels: Mapping[str, int] = {}
        self.epoch = NO_EPOCH
        self._listeners: list[Listener] = []
        self._one_at_a_time = asyncio.Lock()

    def on_change(self, listener: Listener) -> None:
        """Called with the levels whenever they are others."""
        self._listeners.append(listener)

    async def start(self) -> None:
        await self._read()

    def session_lost(self) -> None:
        """The watch is gone with it; what was read holds until the next session."""

    async def session_opened(self, session: CoordinationStore) -> None:
        self._store = session
        await self._read_or_retry()

    def _changed(self, event: WatchEvent) -> None:
        self._tasks.spawn("finalised features", self._read_or_retry())

    async def _read_or_retry(self) -> None:
        while True:
            try:
                await self._read()
            except StoreConnectionError as problem:
                log.warning("the finalised features cannot be read now, it is tried again: %s", problem)
                await asyncio.sleep(_RETRY_S)
                continue
            except (SessionExpiredError, StoreFailedError):
                pass  # the next session begins with reading them
            return

    async def _read(self) -> None:
        async with self._one_at_a_time:
            record, epoch = await self._watched()
            levels = dict(record.levels) if record.enabled else {}
            self.epoch = epoch
            if levels == self.levels:
                return
            before, self.levels = self.levels, levels
            log.info("finalised features are %s, and were %s", levels or "none", before or "none")
            for listener in self._listeners:
                listener(levels)

    async def _watched(self) -> tuple[FeaturesRecord, int]:
        while True:
            try:
                node = await self._store.get(paths.FEATURE, self._changed)
            except NoNodeError:
                if await self._store.exists(paths.FEATURE, self._changed) is not None:
                    continue
                return FeaturesRecord(False, {}), NO_EPOCH
            try:
                return records.decode_features(paths.FEATURE, node.data), node.stat.version
            except BadRecordError as problem:
                # Whoever wrote it: without knowing what was agreed on, nothing is used that needs an agreement.
                log.error("no feature is used: %s", problem)
                return FeaturesRecord(False, {}), node.stat.version
