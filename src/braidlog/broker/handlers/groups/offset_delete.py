"""OffsetDelete (api 47): forget where a group was, for topics that none of its members reads."""

from __future__ import annotations

from braidlog.broker.handlers.groups.group_requests import MergingResponder, caller_of, merged_topics, split_existing
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import NONE, ProtocolError, UnknownTopicOrPartitionError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class OffsetDeleteHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def handle(self, request: OffsetDeleteRequest, exchange: Exchange) -> None:
        request.topics, unknown = split_existing(request.topics, self._topics)
        refused = [_unknown(*each) for each in unknown]

        def merge(response: OffsetDeleteResponse) -> None:
            if response.error_code == NONE:
                response.topics = merged_topics(refused, response.topics, lambda topic: topic.name)

        responder = MergingResponder(exchange, OffsetDeleteResponse, self.error_response, merge)
        caller = caller_of(exchange)
        # Also with nothing left to delete: the group itself may be what is wrong.
        self._groups.submit(
            request.group_id, responder, lambda shard, now: shard.delete_offsets(request, caller, responder, now)
        )

    @staticmethod
    def error_response(request: OffsetDeleteRequest, version: int, error: ProtocolError) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=error.code)


def _unknown(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition]
) -> OffsetDeleteResponseTopic:
    code = UnknownTopicOrPartitionError.code
    answers = [
        OffsetDeleteResponsePartition(partition_index=wanted.partition_index, error_code=code) for wanted in partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)
