"""DescribeProducers (api 61): what partitions know of their producers, and since when their transactions are open."""

from __future__ import annotations

from braidlog.broker.faults import error_of
from braidlog.config.topic_names import validate_name
from braidlog.core.protocol_errors import ProtocolError, UnknownTopicOrPartitionError
from braidlog.net.exchange import Exchange
from braidlog.replication.registry import Registry
from braidlog.storage.log import Log
from braidlog.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)


class DescribeProducersHandler:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def handle(self, request: DescribeProducersRequest, exchange: Exchange) -> DescribeProducersResponse:
        return DescribeProducersResponse(topics=[self._topic(topic) for topic in request.topics])

    def _topic(self, wanted: TopicRequest) -> TopicResponse:
        partitions = [self._partition(wanted.name, index) for index in wanted.partition_indexes]
        return TopicResponse(name=wanted.name, partitions=partitions)

    def _partition(self, topic: str, index: int) -> PartitionResponse:
        try:
            validate_name(topic)
            partition = self._registry.get(topic, index)
            if partition is None:
                raise UnknownTopicOrPartitionError(f"there is no partition {index} of {topic!r} here")
            return PartitionResponse(partition_index=index, active_producers=producers_of(partition.require_log()))
        except Exception as failure:
            error = error_of(failure, f"describe the producers of {topic}-{index}")
            return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)


def producers_of(log: Log) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.txn_first_offset,
        )
        for entry in log.producers
    ]


def refuse(request: DescribeProducersRequest, version: int, error: ProtocolError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
