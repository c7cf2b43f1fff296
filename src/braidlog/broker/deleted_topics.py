"""Forgets topics that were deleted while no controller told this broker: before it was registered, between two
registrations, or by a controller that lost its office before it had told everyone.

    the first request of a controller for a registration -> what the store has no longer is forgotten

Not before that request: until then a deletion may end of which this broker is never told. Deletions that go on then, or
begin later, are announced.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from braidlog.broker.local_control_channel import LocalControlChannel
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster import paths
from braidlog.cluster.store import CoordinationStore, SessionExpiredError, StoreConnectionError
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.metadata")

_RETRY_S: Final = 1.0
_OVERRIDES: Final = "topics/"


class DeletedTopics:
    """`session` is the newest one at any time (`CurrentSession`)."""

    def __init__(
        self, session: CoordinationStore, cache: MetadataCache, channel: LocalControlChannel, tasks: Tasks
    ) -> None:
        self._session = session
        self._cache = cache
        self._channel = channel
        self._tasks = tasks

    def look(self) -> None:
        """A controller has begun to tell this broker what happens. Its request must not wait for the store."""
        self._tasks.spawn("forgetting deleted topics", self._forget_until_read())

    async def _forget_until_read(self) -> None:
        while True:
            try:
                await self.forget()
            except StoreConnectionError as problem:
                log.warning("topics that were deleted may still be known here, it is tried again: %s", problem)
                await asyncio.sleep(_RETRY_S)
                continue
            except SessionExpiredError:
                pass  # the next session brings another registration
            return

    async def forget(self) -> None:
        # In this order: the server that this broker talks to may lag behind the one of the controller, and what is made
        # after the sync is not looked at.
        image = self._cache.image
        await self._session.sync()
        topics = list(image.topics.values())
        entities = [entity for entity in image.configs if entity.startswith(_OVERRIDES)]
        wanted = [*(paths.topic(topic.name) for topic in topics), *(paths.config(entity) for entity in entities)]
        nodes = await self._session.get_many(wanted)
        gone = [node is None for node in nodes]
        await self._channel.forget(
            [topic for topic, is_gone in zip(topics, gone, strict=False) if is_gone],
            [entity for entity, is_gone in zip(entities, gone[len(topics) :], strict=True) if is_gone],
        )
