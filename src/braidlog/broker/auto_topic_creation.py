"""Creates topics on first use: those that clients ask for, and those of the coordinators.

On the controller that is a request like any other, and the topics are there afterwards. Any other broker writes the
assignment into the store, from which the controller goes on; until its word comes the topics have no leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster.store import SessionExpiredError, StoreConnectionError, StoreError, StoreFailedError
from braidlog.controller.controller import Controller
from braidlog.controller.requests import NewTopic, NewTopicResult
from braidlog.core.protocol_errors import (
    KafkaStorageError,
    LeaderNotAvailableError,
    NotControllerError,
    ProtocolError,
    TopicAlreadyExistsError,
)

if TYPE_CHECKING:
    from braidlog.broker.policies import CreateTopicPolicy
    from braidlog.controller.direct_writes import DirectWrites


class AutoTopicCreation:
    def __init__(
        self,
        controller: Controller,
        direct_writes: Callable[[], DirectWrites],
        cache: MetadataCache,
        policy: CreateTopicPolicy | None = None,
    ) -> None:
        self._policy = policy
        self._controller = controller
        self._direct_writes = direct_writes
        self._cache = cache

    async def create(self, wanted: Sequence[NewTopic]) -> dict[str, ProtocolError]:
        """By name, what is in the way; a topic that is not in it is in the metadata cache now."""
        results = await self._create(wanted)
        errors = {result.name: result.error for result in results if result.error is not None}
        problems: dict[str, ProtocolError] = {}
        for each in wanted:
            error = errors.get(each.name)
            # Another client may have been quicker: the topic is there, which is what was wanted.
            if error is not None and not isinstance(error, TopicAlreadyExistsError):
                problems[each.name] = error
            elif self._cache.image.topic(each.name) is None:
                problems[each.name] = LeaderNotAvailableError("the topic is being created; try again")
        return problems

    async def _create(self, wanted: Sequence[NewTopic]) -> list[NewTopicResult]:
        if self._controller.active:
            try:
                return await self._by_policy(self._controller.create_topics, wanted)
            except NotControllerError:
                pass  # not any more
        if not self._cache.image.brokers:
            # It has just started: the topics may be there, and placed on nobody they would be refused for good.
            unheard = LeaderNotAvailableError("this broker has not heard of the cluster yet; try again")
            return [NewTopicResult(each.name, unheard) for each in wanted]
        try:
            return await self._by_policy(self._direct_writes().create_topics, wanted)
        except StoreFailedError as problem:
            raise KafkaStorageError(str(problem)) from problem
        except (StoreError, StoreConnectionError, SessionExpiredError) as problem:
            error = LeaderNotAvailableError(f"the topic cannot be created now; try again: {problem}")
            return [NewTopicResult(each.name, error) for each in wanted]

    async def _by_policy(
        self, create: Callable[[Sequence[NewTopic], bool], Awaitable[list[NewTopicResult]]], wanted: Sequence[NewTopic]
    ) -> list[NewTopicResult]:
        if self._policy is None:
            return await create(wanted, False)
        return await self._policy.create_topics(create, wanted)
