"""Follows the overrides in the store: a notification names the entity to read again.

    /config/changes/config_change_0000000007   {"version":2,"entity_path":"topics/orders"}

Several notifications of one entity cost one read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from braidlog.broker.change_notifications import ChangeNotificationListener
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster import loading, paths, records
from braidlog.cluster.image import topic_entity
from braidlog.cluster.records import BadRecordError
from braidlog.cluster.store import CoordinationStore
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.settings")


class ConfigChangeListener(ChangeNotificationListener):
    notifications_path = paths.CONFIG_CHANGES
    subject = "overrides"

    def __init__(self, store: CoordinationStore, cache: MetadataCache, tasks: Tasks) -> None:
        super().__init__(store, tasks)
        self._cache = cache
        cache.read_topic_configs = self.read_topics

    async def read_topics(self, names: Sequence[str]) -> None:
        """Where the store does not answer, topics have their overrides a little later: their leaders do not wait."""

        async def read() -> None:
            # Not while all of them are read: what was read before the topics were made would take the place of this.
            async with self._one_at_a_time:
                # Another broker wrote them, maybe a moment ago.
                await self._store.sync()
                await self._read(topic_entity(name) for name in names)

        await self._try_or_retry(read)

    async def _load(self) -> None:
        await self._cache.load_configs(await loading.load_configs(self._store, frozenset()))

    async def _read_changed(self, notifications: Mapping[str, bytes]) -> None:
        named = (_entity(path, data) for path, data in notifications.items())
        # A dict as an ordered set.
        await self._read(dict.fromkeys(entity for entity in named if entity is not None))

    async def _read(self, entities: Iterable[str]) -> None:
        wanted = [entity for entity in entities if entity.partition("/")[0] in paths.CONFIG_KINDS]
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


def _entity(path: str, data: bytes) -> str | None:
    try:
        return records.decode_config_change(path, data)
    except BadRecordError as problem:
        log.error("a config change was ignored: %s", problem)
        return None
