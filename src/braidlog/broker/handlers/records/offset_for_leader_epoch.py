"""OffsetForLeaderEpoch (api 23): where a leader epoch ended, for readers that check for truncation (KIP-320)."""

from __future__ import annotations

from collections.abc import Generator

from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.wire.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpochHandler:
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
