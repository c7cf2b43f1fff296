"""FindCoordinator (api 10): which broker keeps a group or a transactional id.

    v0      groups only          v1   transactional ids          v4   many keys at once (KIP-699)

The internal topic is created by the first question, and the answer waits for it: a client need not ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer, refusal
from braidlog.broker.coordinators.internal_topics import InternalTopics
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.coordinator.partitioning import partition_for
from braidlog.core.protocol_errors import CoordinatorNotAvailableError, InvalidRequestError, ProtocolError
from braidlog.core.time_slice import TimeSlice
from braidlog.core.types import NO_BROKER
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_TOPICS: Final = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_RESOURCES: Final = {0: AclResourceType.GROUP, 1: AclResourceType.TRANSACTIONAL_ID}
_MANY_KEYS_FROM: Final = 4
# Kafka names its code for success as the message, but not where there are many keys.
_SUCCESS: Final = "NONE"


class FindCoordinatorHandler:
    def __init__(self, cache: MetadataCache, topics: InternalTopics, authorizer: Authorizer) -> None:
        self._cache = cache
        self._topics = topics
        self._authorizer = authorizer

    async def handle(self, request: FindCoordinatorRequest, exchange: Exchange) -> FindCoordinatorResponse:
        topic = _TOPICS.get(request.key_type)
        if topic is None:
            raise InvalidRequestError(f"coordinators of key type {request.key_type} are unknown")
        many = exchange.version >= _MANY_KEYS_FROM
        keys = request.coordinator_keys if many else [request.key]
        resource = _RESOURCES[request.key_type]
        allowed = await self._authorizer.allowed_in_slices(exchange, AclOperation.DESCRIBE, resource, keys)
        if not many and not allowed:
            raise refusal(exchange, AclOperation.DESCRIBE, resource, request.key)
        if allowed:
            # The topic is not made for who may not know what is in it.
            await self._topics.ensure(topic)
        find = self._finder(topic, exchange.channel.listener) if allowed else None
        time_slice = TimeSlice()
        coordinators: list[Coordinator] = []
        for key in keys:
            if find is None or key not in allowed:
                coordinators.append(_refused(key, refusal(exchange, AclOperation.DESCRIBE, resource, key)))
            else:
                coordinators.append(find(key))
            await time_slice.yield_if_over()
        if many:
            return FindCoordinatorResponse(coordinators=coordinators)
        (found,) = coordinators
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or _SUCCESS,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _finder(self, topic: str, listener: str) -> Callable[[str], Coordinator]:
        image = self._cache.image
        known = image.topic(topic)
        if known is None:
            raise CoordinatorNotAvailableError(f"{topic} is being created")
        partitions, count = known.partitions, self._topics.partition_count(topic)

        def find(key: str) -> Coordinator:
            index = partition_for(key, count)
            # This broker may not have been told of all of them yet.
            leader = partitions[index].leader if index < len(partitions) else NO_BROKER
            broker = image.brokers.get(leader)
            endpoint = broker.endpoint(listener) if broker is not None else None
            if broker is None or endpoint is None:
                return _refused(key, CoordinatorNotAvailableError("the coordinator's partition has no leader now"))
            return Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port)

        return find

    @staticmethod
    def error_response(request: FindCoordinatorRequest, version: int, error: ProtocolError) -> FindCoordinatorResponse:
        if version < _MANY_KEYS_FROM:
            return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, port=-1)
        return FindCoordinatorResponse(coordinators=[_refused(key, error) for key in request.coordinator_keys])


def _refused(key: str, error: ProtocolError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)
