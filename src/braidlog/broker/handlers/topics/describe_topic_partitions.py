"""DescribeTopicPartitions (api 75): topics in name order, page by page (KIP-966)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.topics.metadata import TopicDescriber
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.core.protocol_errors import (
    InvalidRequestError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from braidlog.net.exchange import Exchange
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

# Errors are as in this version of Metadata, but not shown.
_LATEST_METADATA: Final = 13


class DescribeTopicPartitionsHandler:
    def __init__(
        self, cache: MetadataCache, registry: PartitionRegistry, most_partitions: int, authorizer: Authorizer
    ) -> None:
        self._cache = cache
        self._authorizer = authorizer
        self._registry = registry
        self._most_partitions = most_partitions

    def handle(
        self, request: DescribeTopicPartitionsRequest, exchange: Exchange
    ) -> Generator[None, None, DescribeTopicPartitionsResponse]:
        image = self._cache.image
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise InvalidRequestError("the cursor's partition must not be negative")
        names = sorted({topic.name for topic in request.topics} if request.topics else image.topics)
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
        left = max(1, min(request.response_partition_limit, self._most_partitions))
        describer = TopicDescriber(image, self._registry, exchange.channel.listener, _LATEST_METADATA)
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        refused: list[DescribeTopicPartitionsResponseTopic] = []
        next_cursor: ResponseCursor | None = None
        for name in names:
            yield
            if next_cursor is not None and not request.topics:
                break
            if not self._authorizer.authorize(
                exchange, AclOperation.DESCRIBE, AclResourceType.TOPIC, name, log_if_denied=bool(request.topics)
            ):
                if request.topics:
                    code = TopicAuthorizationFailedError.code
                    refused.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
                continue
            if next_cursor is not None:
                continue
            operations = self._authorizer.authorized_operations(exchange, AclResourceType.TOPIC, name)
            topic = image.topic(name)
            if topic is None:
                topics.append(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=UnknownTopicOrPartitionError.code,
                        name=name,
                        topic_authorized_operations=operations,
                    )
                )
                continue
            if left == 0:
                next_cursor = ResponseCursor(topic_name=name, partition_index=0)
                continue
            start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            described = describer.describe(topic)
            page = described.partitions[start : start + left]
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    name=name,
                    topic_id=topic.topic_id,
                    is_internal=topic.internal,
                    topic_authorized_operations=operations,
                    partitions=[
                        DescribeTopicPartitionsResponsePartition(
                            # As in Kafka, which shows no leader where there is none, but not as an error.
                            partition_index=partition.partition_index,
                            leader_id=partition.leader_id,
                            leader_epoch=partition.leader_epoch,
                            replica_nodes=partition.replica_nodes,
                            isr_nodes=partition.isr_nodes,
                            eligible_leader_replicas=[],
                            last_known_elr=[],
                            offline_replicas=partition.offline_replicas,
                        )
                        for partition in page
                    ],
                )
            )
            left -= len(page)
            if start + len(page) < len(described.partitions):
                next_cursor = ResponseCursor(topic_name=name, partition_index=start + len(page))
        return DescribeTopicPartitionsResponse(topics=topics + refused, next_cursor=next_cursor)

    @staticmethod
    def error_response(
        request: DescribeTopicPartitionsRequest, version: int, error: ProtocolError
    ) -> DescribeTopicPartitionsResponse:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in request.topics
            ]
        )
