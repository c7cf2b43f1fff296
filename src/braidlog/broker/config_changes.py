"""Follows the overrides in the store: read as a whole at start, then again whenever a notification names an entity.

    /config/changes/config_change_0000000007   {"version":2,"entity_path":"topics/orders"}

A notification says only what to read again, so several of one entity cost one read. They are numbered and purged after
a while: after a session was lost everything is read anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster import loading, paths, records
from braidlog.cluster.image import topic_entity
from braidlog.cluster.records import BadRecordError
from braidlog.cluster.store import (
    CoordinationStore,
    SessionExpiredError,
    StoreConnectionError,
    StoreFailedError,
    WatchEvent,
)
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.settings")

# Overrides that the image holds; those of users, clients and ips are the quotas'.
_KINDS: Final = ("topics", "brokers", "groups")
_NONE_YET: Final = -1
_RETRY_S: Final = 1.0


class ConfigChangeListener:
    def __init__(self, store: CoordinationStore, cache: MetadataCache, tasks: Tasks) -> None:
        self._store = store
        self._cache = cache
        self._tasks = tasks
        # The highest number whose entity was read.
        self._last_change = _NONE_YET
        self._watching = False
        self._one_at_a_time = asyncio.Lock()
        cache.read_topic_configs = self.read_topics

    async def start(self) -> None:
        """Read everything. The watch comes first: no change falls between."""
        async with self._one_at_a_time:
            self._watching = False
            self._last_change = await self._newest(_NONE_YET)
            loaded = await loading.load_configs(self._store, frozenset())
            gone: dict[str, Mapping[str, str]] = {
                entity: {} for entity in self._cache.image.configs if entity not in loaded
            }
            await self._cache.update_configs({**gone, **loaded})

    def session_lost(self) -> None:
        """The watch is gone with it; the next session reads everything."""

    async def session_opened(self, session: CoordinationStore) -> None:
        self._store = session
        await self._try_or_retry(self.start)

    async def catch_up(self) -> None:
        """Once this returns the cache has every change that was in the store when it was called."""
        async with self._one_at_a_time:
            names = await self._names()
            found = [f"{paths.CONFIG_CHANGES}/{name}" for name in names if _number(name) > self._last_change]
            if not found:
                return
            nodes = await self._store.get_many(found)
            # A dict as an ordered set; a node that is gone was purged: the one who did so is newer than it.
            entities: dict[str, None] = {}
            for path, node in zip(found, nodes, strict=True):
                entity = None if node is None else _entity(path, node.data)
                if entity is not None:
                    entities[entity] = None
            await self._read(entities)
            self._last_change = max(_number(name) for name in names)

    async def read_topics(self, names: Sequence[str]) -> None:
        """Where the store does not answer, topics have their overrides a little later: their leaders do not wait."""

        async def read() -> None:
            # Another broker wrote them, maybe a moment ago.
            await self._store.sync()
            await self._read(topic_entity(name) for name in names)

        await self._try_or_retry(read)

    async def _read(self, entities: Iterable[str]) -> None:
        wanted = [entity for entity in entities if entity.partition("/")[0] in _KINDS]
        if not wanted:
            return
        found: dict[str, dict[str, str]] = {}
        nodes = await self._store.get_many([paths.config(entity) for entity in wanted])
        for entity, node in zip(wanted, nodes, strict=True):
            try:
                found[entity] = {} if node is None else records.decode_config(paths.config(entity), node.data)
            except BadRecordError as problem:
                log.error("the overrides of %s stay as they were: %s", entity, problem)
        await self._cache.update_configs(found)

    async def _newest(self, default: int) -> int:
        return max((_number(name) for name in await self._names()), default=default)

    async def _names(self) -> list[str]:
        if self._watching:
            return await self._store.children(paths.CONFIG_CHANGES)
        # Before the call, as the watch may fire before it returns.
        self._watching = True
        try:
            return await self._store.children(paths.CONFIG_CHANGES, self._changed)
        except Exception:
            self._watching = False
            raise

    def _changed(self, event: WatchEvent) -> None:
        self._watching = False
        self._tasks.spawn("reading config changes", self._try_or_retry(self.catch_up))

    async def _try_or_retry(self, read: Callable[[], Awaitable[None]]) -> None:
        """Where the store does not answer, go on; it is read in the background once that is possible."""
        if not await self._tried(read):
            self._tasks.spawn("reading overrides", self._try_again(read))

    async def _try_again(self, read: Callable[[], Awaitable[None]]) -> None:
        done = False
        while not done:
            await asyncio.sleep(_RETRY_S)
            done = await self._tried(read)

    async def _tried(self, read: Callable[[], Awaitable[None]]) -> bool:
        """Whether there is nothing more to do: with the next session everything is read anyway."""
        try:
            await read()
        except StoreConnectionError as problem:
            log.warning("overrides cannot be read now, it is tried again: %s", problem)
            return False
        except (SessionExpiredError, StoreFailedError) as problem:
            log.warning("overrides cannot be read in this session: %s", problem)
        return True


def _number(name: str) -> int:
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdigit() else _NONE_YET


def _entity(path: str, data: bytes) -> str | None:
    try:
        return records.decode_config_change(path, data)
    except BadRecordError as problem:
        log.error("a config change was ignored: %s", problem)
        return None
