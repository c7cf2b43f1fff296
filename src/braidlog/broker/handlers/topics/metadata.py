"""Metadata (api 3): brokers, controller, topics and the leaders of their partitions.

    v0      an empty list means every topic; from v1 on null does     v10   topic ids; from v12 on looked up by id
    v4      the client may forbid auto-creation                       v8    authorized operations
    v6      LISTENER_NOT_FOUND where the leader is alive, but not on this listener

A topic that is auto-created by the controller itself is described in the same response; any other broker answers
LEADER_NOT_AVAILABLE meanwhile.
A topic that is named again is described once. Many topics are described in slices (`broker/requests/time_slicing`).

A broker that has just started knows no brokers, not even itself, until the controller has told it of the cluster. A
client that is told so may forget all brokers that it knew (librdkafka does), so that the answer waits for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.auto_topic_creation import AutoTopicCreation
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.quotas.mutation_quotas import MutationQuotas
from braidlog.cluster.image import ClusterImage, PartitionInfo, TopicImage
from braidlog.config.topic_names import is_internal, problem_with
from braidlog.controller.requests import NewTopic
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import (
    NONE,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    ProtocolError,
    ReplicaNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.time_slice import TimeSlice, run_in_slices
from braidlog.core.types import NO_BROKER
from braidlog.net.exchange import Exchange
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.security.acls import AUTHORIZED_OPERATIONS_OMITTED, CLUSTER_RESOURCE, AclOperation, AclResourceType
from braidlog.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

# Before it there was no such error for clients.
_LISTENER_NOT_FOUND_FROM: Final = 6
# How long a client waits for a broker that knows of nobody; then that is what it is told, as by Kafka.
_ANNOUNCED_WITHIN_S: Final = 5.0


class MetadataHandler:
    def __init__(
        self,
        cache: MetadataCache,
        registry: PartitionRegistry,
        creation: AutoTopicCreation,
        auto_create: bool,
        wanted: Callable[[str], NewTopic],
        announced: Callable[[], Awaitable[object]],
        authorizer: Authorizer,
        quotas: MutationQuotas,
        announced_within_s: float = _ANNOUNCED_WITHIN_S,
    ) -> None:
        """`announced` returns once the controller has told this broker of the cluster."""
        self._cache = cache
        self._creation = creation
        self._registry = registry
        self._auto_create = auto_create
        # How a topic of that name is made: the internal ones are not like the others.
        self._wanted = wanted
        self._announced = announced
        self._authorizer = authorizer
        self._quotas = quotas
        self._announced_within_s = announced_within_s

    def handle(
        self, request: MetadataRequest, exchange: Exchange
    ) -> Generator[None, None, MetadataResponse] | Coroutine[Any, Any, MetadataResponse]:
        if not self._cache.image.brokers:
            return self._describe_when_announced(request, exchange)
        return self._describe_now(request, exchange)

    async def _describe_when_announced(self, request: MetadataRequest, exchange: Exchange) -> MetadataResponse:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._announced_within_s):
                await self._announced()
        work = self._describe_now(request, exchange)
        if isinstance(work, Generator):
            response: MetadataResponse = await run_in_slices(work)
            return response
        return await work

    def _describe_now(
        self, request: MetadataRequest, exchange: Exchange
    ) -> Generator[None, None, MetadataResponse] | Coroutine[Any, Any, MetadataResponse]:
        version = exchange.version
        if request.topics is None or (version == 0 and not request.topics):
            return self._describe(request, exchange, None)
        wanted = list({(topic.topic_id, topic.name): topic for topic in request.topics}.values())
        if version < 12 and any(topic.topic_id != ZERO_ID for topic in wanted):
            raise InvalidRequestError("topic ids can be asked for from version 12 on")
        if self._authorizer.enabled:
            return self._describe_authorized(request, exchange, wanted)
        return self._create_or_describe(request, exchange, wanted, [])

    async def _describe_authorized(
        self, request: MetadataRequest, exchange: Exchange, wanted: list[MetadataRequestTopic]
    ) -> MetadataResponse:
        shown, refused = await self._take_out_hidden(wanted, exchange)
        work = self._create_or_describe(request, exchange, shown, refused)
        if isinstance(work, Generator):
            response: MetadataResponse = await run_in_slices(work)
            return response
        return await work

    def _create_or_describe(
        self,
        request: MetadataRequest,
        exchange: Exchange,
        wanted: list[MetadataRequestTopic],
        refused: list[MetadataResponseTopic],
    ) -> Generator[None, None, MetadataResponse] | Coroutine[Any, Any, MetadataResponse]:
        if self._auto_create and request.allow_auto_topic_creation:
            image = self._cache.image
            missing = [
                topic.name
                for topic in wanted
                if topic.name and topic.topic_id == ZERO_ID and not image.topic(topic.name)
            ]
            if missing and self._authorizer.enabled:
                forbidden = self._not_creatable(missing, exchange)
                wanted = [topic for topic in wanted if topic.topic_id != ZERO_ID or topic.name not in forbidden]
                missing = [name for name in missing if name not in forbidden]
                refused = [*(_forbidden(name) for name in forbidden), *refused]
            creatable = [name for name in dict.fromkeys(missing) if _name_error(name) is None]
            if creatable:
                return self._create_then_describe(request, exchange, wanted, creatable, refused)
        return self._describe(request, exchange, wanted, refused=refused)

    async def _take_out_hidden(
        self, wanted: list[MetadataRequestTopic], exchange: Exchange
    ) -> tuple[list[MetadataRequestTopic], list[MetadataResponseTopic]]:
        """What the client may know of, and answers about the rest, which do not say whether it is there."""
        shown: list[MetadataRequestTopic] = []
        refused: list[MetadataResponseTopic] = []
        time_slice = TimeSlice()
        for topic in wanted:
            await time_slice.yield_if_over()
            by_id = topic.topic_id != ZERO_ID
            name = self._cache.name_of(topic.topic_id) if by_id else topic.name or ""
            if name is None or self._authorizer.authorize(exchange, AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
                shown.append(topic)
            elif by_id:
                # An id is no secret, the name is.
                code = TopicAuthorizationFailedError.code
                refused.append(MetadataResponseTopic(error_code=code, name=None, topic_id=topic.topic_id))
            else:
                refused.append(_forbidden(name))
        return shown, refused

    def _not_creatable(self, names: list[str], exchange: Exchange) -> dict[str, None]:
        """Those that the client may not create, as an ordered set."""
        if self._authorizer.authorize(exchange, AclOperation.CREATE, *CLUSTER_RESOURCE, log_if_denied=False):
            return {}
        allowed = self._authorizer.allowed(exchange, AclOperation.CREATE, AclResourceType.TOPIC, names)
        return {name: None for name in names if name not in allowed}

    async def _create_then_describe(
        self,
        request: MetadataRequest,
        exchange: Exchange,
        wanted: list[MetadataRequestTopic],
        names: list[str],
        refused: list[MetadataResponseTopic],
    ) -> MetadataResponse:
        errors = await self._creation.create([self._wanted(name) for name in names])
        quota = self._quotas.of(exchange)
        if quota is not None:
            image = self._cache.image
            created = [topic for name in names if name not in errors and (topic := image.topic(name)) is not None]
            quota.record(sum(len(topic.partitions) for topic in created))
        response: MetadataResponse = await run_in_slices(self._describe(request, exchange, wanted, errors, refused))
        return response

    def _describe(
        self,
        request: MetadataRequest,
        exchange: Exchange,
        wanted: list[MetadataRequestTopic] | None,
        errors: Mapping[str, ProtocolError] = MappingProxyType({}),
        refused: Sequence[MetadataResponseTopic] = (),
    ) -> Generator[None, None, MetadataResponse]:
        image = self._cache.image
        describer = TopicDescriber(image, self._registry, exchange.channel.listener, exchange.version)
        described: Iterator[MetadataResponseTopic | None]
        if wanted is None:
            described = (
                describer.describe(topic) if self._shows(topic.name, exchange) else None
                for topic in image.topics.values()
            )
        else:
            described = (_lookup(image, describer, topic, errors) for topic in wanted)
        topics: list[MetadataResponseTopic] = []
        for topic in described:
            if topic is not None:
                if request.include_topic_authorized_operations and topic.name is not None:
                    topic.topic_authorized_operations = self._authorizer.authorized_operations(
                        exchange, AclResourceType.TOPIC, topic.name
                    )
                topics.append(topic)
            yield
        topics += refused
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker in image.brokers.values()
                if (endpoint := broker.endpoint(exchange.channel.listener)) is not None
            ],
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            topics=topics,
            cluster_authorized_operations=(
                self._authorizer.cluster_operations(exchange)
                if request.include_cluster_authorized_operations
                else AUTHORIZED_OPERATIONS_OMITTED
            ),
        )

    def _shows(self, topic: str, exchange: Exchange) -> bool:
        """Whether a topic that nobody asked for by name is in the list."""
        return self._authorizer.authorize(
            exchange, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic, log_if_denied=False
        )

    @staticmethod
    def error_response(request: MetadataRequest, version: int, error: ProtocolError) -> MetadataResponse:
        return MetadataResponse(
            error_code=error.code,
            topics=[
                MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
                for topic in request.topics or []
            ],
        )


def _lookup(
    image: ClusterImage,
    describer: TopicDescriber,
    wanted: MetadataRequestTopic,
    errors: Mapping[str, ProtocolError],
) -> MetadataResponseTopic:
    if wanted.topic_id != ZERO_ID:
        by_id = image.topic_by_id(wanted.topic_id)
        if by_id is None:
            return MetadataResponseTopic(error_code=UnknownTopicIdError.code, name=None, topic_id=wanted.topic_id)
        return describer.describe(by_id)
    name = wanted.name or ""
    topic = image.topic(name)
    if topic is not None:
        return describer.describe(topic)
    error = errors.get(name) or _name_error(name) or UnknownTopicOrPartitionError()
    return MetadataResponseTopic(error_code=error.code, name=name)


def _forbidden(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=TopicAuthorizationFailedError.code, name=name, is_internal=is_internal(name)
    )


class TopicDescriber:
    """Describes topics to a client that came in on a listener, in a version of Metadata."""

    def __init__(self, image: ClusterImage, registry: PartitionRegistry, listener: str, version: int) -> None:
        self._registry = registry
        self._brokers = image.brokers
        # A broker without this listener is of no use to the client.
        self._reachable = {id for id, broker in image.brokers.items() if broker.endpoint(listener) is not None}
        self._version = version

    def describe(self, topic: TopicImage) -> MetadataResponseTopic:
        partitions = topic.partitions
        described = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            # Those without replicas are not known yet.
            partitions=[self._partition(index, each) for index, each in enumerate(partitions) if each.replicas],
        )
        lost = {partition.index: partition.broker_id for partition in self._registry.offline_of(topic.name)}
        if lost:
            for partition in described.partitions:
                here = lost.get(partition.partition_index)
                if here is not None:
                    _take_offline(partition, here)
        return described

    def _partition(self, index: int, info: PartitionInfo) -> MetadataResponsePartition:
        leader = info.leader
        if leader in self._reachable:
            error = NONE
            if self._version == 0 and not self._reachable.issuperset(info.replicas):
                error = ReplicaNotAvailableError.code
        else:
            hidden = leader in self._brokers and self._version >= _LISTENER_NOT_FOUND_FROM
            error = ListenerNotFoundError.code if hidden else LeaderNotAvailableError.code
            leader = NO_BROKER
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=info.leader_epoch,
            replica_nodes=list(info.replicas),
            isr_nodes=list(info.isr),
            offline_replicas=self._offline(info),
        )

    def _offline(self, info: PartitionInfo) -> list[int]:
        brokers, announced = self._brokers, info.offline
        return [replica for replica in info.replicas if replica not in brokers or replica in announced]


def _take_offline(partition: MetadataResponsePartition, here: int) -> None:
    """Its log was lost here with a data directory, which the controller may not have announced yet."""
    if here not in partition.offline_replicas:
        offline = {*partition.offline_replicas, here}
        partition.offline_replicas = [replica for replica in partition.replica_nodes if replica in offline]
    if partition.leader_id == here:
        partition.error_code = LeaderNotAvailableError.code
        partition.leader_id = NO_BROKER


def _name_error(name: str) -> ProtocolError | None:
    problem = problem_with(name)
    return None if problem is None else InvalidTopicError(problem)
