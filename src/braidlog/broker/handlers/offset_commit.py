"""OffsetCommit (api 8): where a group goes on reading.

v0      kept in the coordination store         v6    the leader's epoch goes with the offset
v1      kept by the group's coordinator        v7    static members
v2-v4   with a retention of its own            v10   topics by id
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.broker.faults import error_of
from braidlog.broker.tickets import ExchangeTicket, caller_of
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.coordinator.group.offset_records import text_units
from braidlog.coordinator.group.shard import GroupShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import Coordinator
from braidlog.core.protocol_errors import (
    NONE,
    OffsetMetadataTooLargeError,
    ProtocolError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from braidlog.wire.message import Message

_TOPIC_IDS_FROM: Final = 10


class OffsetCommitHandler:
    def __init__(
        self,
        groups: Coordinator[GroupShard],
        topics: Topics,
        legacy: LegacyOffsets,
        tasks: Tasks,
        metadata_limit: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._legacy = legacy
        self._tasks = tasks
        self._metadata_limit = metadata_limit

    def handle(self, request: OffsetCommitRequest, exchange: Exchange) -> None:
        refused = self._take_out_unknown(request, exchange.version)
        ticket = CommitTicket(exchange, request, refused)
        if not request.topics:
            ticket.answer(OffsetCommitResponse())
        elif exchange.version == 0:
            exchange.channel.mute()
            self._tasks.spawn("OffsetCommit v0", self._commit_to_store(request, ticket))
        else:
            caller = caller_of(exchange)
            self._groups.submit(
                request.group_id, ticket, lambda shard, now: shard.commit_offsets(request, caller, ticket, now)
            )

    def _take_out_unknown(self, request: OffsetCommitRequest, version: int) -> list[OffsetCommitResponseTopic]:
        """Leaves in the request what is there, with its name; returns what is not, with the error."""
        known: list[OffsetCommitRequestTopic] = []
        refused: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            code = UnknownTopicOrPartitionError.code
            if version >= _TOPIC_IDS_FROM:
                name = self._topics.name_of(topic.topic_id)
                topic.name = name or ""
                code = UnknownTopicIdError.code if name is None else code
            facts = self._topics.get(topic.name)
            count = 0 if facts is None else facts.partitions
            unknown = [wanted for wanted in topic.partitions if not 0 <= wanted.partition_index < count]
            if unknown:
                refused.append(_answer(topic, unknown, code))
                topic.partitions = [wanted for wanted in topic.partitions if 0 <= wanted.partition_index < count]
            if topic.partitions:
                known.append(topic)
        request.topics = known
        return refused

    async def _commit_to_store(self, request: OffsetCommitRequest, ticket: CommitTicket) -> None:
        limit = self._metadata_limit()
        offsets: list[tuple[TopicPartition, int]] = []
        topics: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                code = NONE
                if wanted.committed_metadata is not None and text_units(wanted.committed_metadata) > limit:
                    code = OffsetMetadataTooLargeError.code
                else:
                    offsets.append((TopicPartition(topic.name, wanted.partition_index), wanted.committed_offset))
                answers.append(OffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        try:
            if offsets:
                await self._legacy.commit(request.group_id, offsets)
        except Exception as problem:
            ticket.fail(error_of(problem, "OffsetCommit v0"))
        else:
            ticket.answer(OffsetCommitResponse(topics=topics))


class CommitTicket(ExchangeTicket):
    """Adds to the coordinator's answer what never reached it."""

    __slots__ = ("_refused",)

    def __init__(
        self, exchange: Exchange, request: OffsetCommitRequest, refused: list[OffsetCommitResponseTopic]
    ) -> None:
        super().__init__(exchange, request, refuse)
        self._refused = refused

    def answer(self, response: Message) -> None:
        if self._refused and isinstance(response, OffsetCommitResponse):
            topics = {(topic.name, topic.topic_id): topic for topic in self._refused}
            for topic in response.topics:
                before = topics.setdefault((topic.name, topic.topic_id), topic)
                if before is not topic:
                    before.partitions += topic.partitions
            response.topics = list(topics.values())
        super().answer(response)


def _answer(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: int
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=code)
            for wanted in partitions
        ],
    )


def refuse(request: OffsetCommitRequest, version: int, error: ProtocolError) -> OffsetCommitResponse:
    code = error.code
    return OffsetCommitResponse(topics=[_answer(topic, topic.partitions, code) for topic in request.topics])
