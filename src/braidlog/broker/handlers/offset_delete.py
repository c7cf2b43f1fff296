"""OffsetDelete (api 47): forget where a group was, for topics that none of its members reads."""

from __future__ import annotations

from braidlog.broker.known_partitions import MergingTicket, split_known
from braidlog.broker.tickets import caller_of
from braidlog.coordinator.group.shard import GroupShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import Coordinator
from braidlog.core.protocol_errors import ProtocolError, UnknownTopicOrPartitionError
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
    def __init__(self, groups: Coordinator[GroupShard], topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def handle(self, request: OffsetDeleteRequest, exchange: Exchange) -> None:
        request.topics, unknown = split_known(request.topics, self._topics)
        ticket = MergingTicket(exchange, request, refuse, [_unknown(*each) for each in unknown])
        caller = caller_of(exchange)
        # Also with nothing left to delete: the group itself may be what is wrong.
        self._groups.submit(
            request.group_id, ticket, lambda shard, now: shard.delete_offsets(request, caller, ticket, now)
        )


def _unknown(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition]
) -> OffsetDeleteResponseTopic:
    code = UnknownTopicOrPartitionError.code
    answers = [
        OffsetDeleteResponsePartition(partition_index=wanted.partition_index, error_code=code) for wanted in partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)


def refuse(request: OffsetDeleteRequest, version: int, error: ProtocolError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)
