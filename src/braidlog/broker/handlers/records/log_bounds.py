"""Where a log begins and its leader epochs end: DeleteRecords, OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.protocol_errors import OffsetOutOfRangeError, PolicyViolationError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from braidlog.wire.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

# In DeleteRecords.
TO_HIGH_WATERMARK: Final = -1


class OffsetForLeaderEpochHandler:
    """OffsetForLeaderEpoch (api 23): where a leader epoch ended, for readers that check for truncation (KIP-320)."""

    def __init__(self, registry: PartitionRegistry) -> None:
        self._registry = registry

    def handle(
        self, request: OffsetForLeaderEpochRequest, exchange: Exchange
    ) -> Generator[None, None, OffsetForLeaderEpochResponse]:
        response = OffsetForLeaderEpochResponse(topics=[])
        for topic in request.topics:
            answers: list[EpochEndOffset] = []
            for wanted in topic.partitions:
                answers.append(self._end(topic.topic, wanted))
                yield
            response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return response

    def _end(self, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        answer = EpochEndOffset(partition=wanted.partition)
        try:
            partition = self._registry.require(topic, wanted.partition)
            partition.check_epoch(wanted.current_leader_epoch)
            end = partition.require_log().end_offset_for_epoch(wanted.leader_epoch)
            if end is not None:
                answer.leader_epoch, answer.end_offset = end
        except Exception as problem:
            answer.error_code = to_protocol_error(problem, f"epoch end of {topic}-{wanted.partition}").code
        return answer

    @staticmethod
    def error_response(request: OffsetForLeaderEpochRequest, version: int, error: ProtocolError) -> None:
        """There is no such response: the connection is closed."""


class DeleteRecordsHandler:
    """DeleteRecords (api 21): move the start of partitions forward; -1 means up to the high watermark."""

    def __init__(self, registry: PartitionRegistry) -> None:
        self._registry = registry

    def handle(self, request: DeleteRecordsRequest, exchange: Exchange) -> Generator[None, None, DeleteRecordsResponse]:
        response = DeleteRecordsResponse(topics=[])
        for topic in request.topics:
            answers: list[DeleteRecordsPartitionResult] = []
            for wanted in topic.partitions:
                answers.append(self._delete(topic.name, wanted))
                yield
            response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
        return response

    def _delete(self, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        answer = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
        try:
            log = self._registry.require(topic, wanted.partition_index).require_log()
            if "delete" not in log.settings.cleanup_policy:
                raise PolicyViolationError("records of a topic that is only compacted cannot be deleted")
            offset = log.high_watermark if wanted.offset == TO_HIGH_WATERMARK else wanted.offset
            if offset < 0 or offset > log.high_watermark:
                raise OffsetOutOfRangeError
            log.increment_log_start_offset(offset)
            answer.low_watermark = log.log_start_offset
        except Exception as problem:
            answer.error_code = to_protocol_error(problem, f"delete records of {topic}-{wanted.partition_index}").code
        return answer

    @staticmethod
    def error_response(request: DeleteRecordsRequest, version: int, error: ProtocolError) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
