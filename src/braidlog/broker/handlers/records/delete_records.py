"""DeleteRecords (api 21): move the start of partitions forward; -1 means up to the high watermark."""

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

TO_HIGH_WATERMARK: Final = -1


class DeleteRecordsHandler:
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
