"""What this broker changes in the store by itself, controller or not: config overrides, and topics on their first use.

The controller elects the leaders of such topics a little later; those who asked for them wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster.image import ClusterImage, ImageDelta
from braidlog.cluster.store import SessionExpiredError, StoreConnectionError, StoreError, StoreFailedError
from braidlog.controller.active_controller import as_protocol_error
from braidlog.controller.controller import Controller
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.requests import ConfigChanges, ConfigResult, FullConfig, NewTopic, NewTopicResult
from braidlog.core.protocol_errors import (
    LeaderNotAvailableError,
    NotControllerError,
    ProtocolError,
    TopicAlreadyExistsError,
)

# Clients ask again soon: they are told that there is no leader yet.
_LONGEST_WAIT_S: Final = 5.0

T = TypeVar("T")


class DirectChanges:
    def __init__(self, controller: Controller, writes: DirectWrites, cache: MetadataCache) -> None:
        self._controller = controller
        self._writes = writes
        self._cache = cache
        # Those who wait for topics to be led.
        self._waiting: list[asyncio.Event] = []
        cache.add_listener(self)

    async def alter_configs(self, requests: Sequence[FullConfig], validate_only: bool = False) -> list[ConfigResult]:
        return await _mapped(self._writes.alter_configs(requests, validate_only))

    async def incremental_alter_configs(
        self, requests: Sequence[ConfigChanges], validate_only: bool = False
    ) -> list[ConfigResult]:
        return await _mapped(self._writes.incremental_alter_configs(requests, validate_only))

    async def create_topics(self, requests: Sequence[NewTopic]) -> list[NewTopicResult]:
        """A topic without an error is in the metadata cache now, whoever created it."""
        results = await self._create_topics(requests)
        return [result._replace(error=self._error(result)) for result in results]

    def _error(self, result: NewTopicResult) -> ProtocolError | None:
        if result.error is not None and not isinstance(result.error, TopicAlreadyExistsError):
            return result.error
        if self._cache.image.topic(result.name) is None:
            return LeaderNotAvailableError("the topic is being created; try again")
        return None

    async def _create_topics(self, requests: Sequence[NewTopic]) -> list[NewTopicResult]:
        if self._controller.active:
            try:
                return await self._controller.create_topics(requests)
            except NotControllerError:
                pass  # not any more
        try:
            results = await self._writes.create_topics(requests)
        except (StoreError, StoreConnectionError, SessionExpiredError) as problem:
            error = LeaderNotAvailableError(f"the topic cannot be created now; try again: {problem}")
            return [NewTopicResult(each.name, error) for each in requests]
        # Also what another broker has just created.
        await self._led(
            [each.name for each in results if each.error is None or isinstance(each.error, TopicAlreadyExistsError)]
        )
        return results

    async def _led(self, names: Sequence[str]) -> None:
        """Wait until all partitions of these topics are known to be led, but not for long."""
        changed = asyncio.Event()
        self._waiting.append(changed)
        try:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                while not all(map(self._is_led, names)):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._waiting.remove(changed)

    def _is_led(self, name: str) -> bool:
        topic = self._cache.image.topic(name)
        return topic is not None and all(partition.leader >= 0 for partition in topic.partitions)

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        if delta.topics_created or delta.topics_changed:
            for event in self._waiting:
                event.set()


async def _mapped(writing: Awaitable[T]) -> T:
    try:
        return await writing
    except (StoreError, StoreConnectionError, SessionExpiredError, StoreFailedError) as problem:
        raise as_protocol_error(problem) from problem
