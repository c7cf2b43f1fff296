"""OffsetDelete (api 47): forget where a group was, for topics that none of its members reads."""

from __future__ import annotations

from braidlog.broker.tickets import ExchangeTicket, caller_of
from braidlog.coordinator.group.shard import GroupShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import Coordinator
from braidlog.core.protocol_errors import NONE, ProtocolError, UnknownTopicOrPartitionError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from braidlog.wire.message import Message


class OffsetDeleteHandler:
    def __init__(self, groups: Coordinator[GroupShard], topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def handle(self, request: OffsetDeleteRequest, exchange: Exchange) -> None:
        ticket = DeleteTicket(exchange, request, self._take_out_unknown(request))
        caller = caller_of(exchange)
        # Also with nothing left to delete: the group itself may be what is wrong.
        self._groups.submit(
            request.group_id, ticket, lambda shard, now: shard.delete_offsets(request, caller, ticket, now)
        )

    def _take_out_unknown(self, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
        known: list[OffsetDeleteRequestTopic] = []
        refused: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            facts = self._topics.get(topic.name)
            count = 0 if facts is None else facts.partitions
            unknown = [wanted for wanted in topic.partitions if not 0 <= wanted.partition_index < count]
            if unknown:
                answers = [
                    OffsetDeleteResponsePartition(
                        partition_index=wanted.partition_index, error_code=UnknownTopicOrPartitionError.code
                    )
                    for wanted in unknown
                ]
                refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
                topic.partitions = [wanted for wanted in topic.partitions if 0 <= wanted.partition_index < count]
            if topic.partitions:
                known.append(topic)
        request.topics = known
        return refused


class DeleteTicket(ExchangeTicket):
    """Adds to the coordinator's answer what never reached it, unless the answer is about the group as a whole."""

    __slots__ = ("_refused",)

    def __init__(
        self, exchange: Exchange, request: OffsetDeleteRequest, refused: list[OffsetDeleteResponseTopic]
    ) -> None:
        super().__init__(exchange, request, refuse)
        self._refused = refused

    def answer(self, response: Message) -> None:
        if self._refused and isinstance(response, OffsetDeleteResponse) and response.error_code == NONE:
            topics = {topic.name: topic for topic in self._refused}
            for topic in response.topics:
                before = topics.setdefault(topic.name, topic)
                if before is not topic:
                    before.partitions += topic.partitions
            response.topics = list(topics.values())
        super().answer(response)


def refuse(request: OffsetDeleteRequest, version: int, error: ProtocolError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)
