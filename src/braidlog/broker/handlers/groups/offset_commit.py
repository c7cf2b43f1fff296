"""The committed offsets of a group change: OffsetCommit, OffsetDelete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.groups.group_requests import (
    MergingResponder,
    caller_of,
    merged_topics,
    split_existing,
    split_readable,
)
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.coordinator.group.offset_records import text_units
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import (
    NONE,
    OffsetMetadataTooLargeError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_TOPIC_IDS_FROM: Final = 10
_UNKNOWN: Final = UnknownTopicOrPartitionError.code
_UNKNOWN_ID: Final = UnknownTopicIdError.code
_FORBIDDEN: Final = TopicAuthorizationFailedError.code


class OffsetCommitHandler:
    """OffsetCommit (api 8): where a group goes on reading.

    v0      kept in the coordination store         v6    the leader's epoch goes with the offset
    v1      kept by the group's coordinator        v7    static members
    v2-v4   with a retention of its own            v10   topics by id
    """

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupCoordinatorShard],
        topics: Topics,
        legacy: LegacyOffsets,
        tasks: Tasks,
        metadata_limit: Callable[[], int],
        authorizer: Authorizer,
    ) -> None:
        self._authorizer = authorizer
        self._groups = groups
        self._topics = topics
        self._legacy = legacy
        self._tasks = tasks
        self._metadata_limit = metadata_limit

    def handle(self, request: OffsetCommitRequest, exchange: Exchange) -> None:
        self._authorizer.check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        refused = self._take_out_unknown(request, exchange)

        def merge(response: OffsetCommitResponse) -> None:
            response.topics = merged_topics(refused, response.topics, lambda topic: (topic.name, topic.topic_id))

        responder = MergingResponder(exchange, OffsetCommitResponse, self.error_response, merge)
        if not request.topics:
            responder.answer(OffsetCommitResponse())
        elif exchange.version == 0:
            exchange.channel.mute()
            self._tasks.spawn("OffsetCommit v0", self._commit_to_store(request, responder))
        else:
            caller = caller_of(exchange)
            self._groups.submit(
                request.group_id, responder, lambda shard, now: shard.commit_offsets(request, caller, responder, now)
            )

    def _take_out_unknown(self, request: OffsetCommitRequest, exchange: Exchange) -> list[OffsetCommitResponseTopic]:
        """Leaves in the request what is there and may be read, with its name; returns the rest, with the errors."""
        by_id = exchange.version >= _TOPIC_IDS_FROM
        refused: list[OffsetCommitResponseTopic] = []
        if by_id:
            for topic in request.topics:
                topic.name = self._topics.name_of(topic.topic_id) or ""
            refused = [_answer(topic, topic.partitions, _UNKNOWN_ID) for topic in request.topics if not topic.name]
            request.topics = [topic for topic in request.topics if topic.name]
        request.topics, forbidden = split_readable(self._authorizer, exchange, request.topics)
        refused += [_answer(topic, topic.partitions, _FORBIDDEN) for topic in forbidden]
        request.topics, unknown = split_existing(request.topics, self._topics)
        return refused + [_answer(topic, missing, _UNKNOWN) for topic, missing in unknown]

    async def _commit_to_store(
        self, request: OffsetCommitRequest, responder: MergingResponder[OffsetCommitResponse]
    ) -> None:
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
            responder.fail(to_protocol_error(problem, "OffsetCommit v0"))
        else:
            responder.answer(OffsetCommitResponse(topics=topics))

    @staticmethod
    def error_response(request: OffsetCommitRequest, version: int, error: ProtocolError) -> OffsetCommitResponse:
        code = error.code
        return OffsetCommitResponse(topics=[_answer(topic, topic.partitions, code) for topic in request.topics])


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


class OffsetDeleteHandler:
    """OffsetDelete (api 47): forget where a group was, for topics that none of its members reads."""

    def __init__(
        self, groups: CoordinatorRuntime[GroupCoordinatorShard], topics: Topics, authorizer: Authorizer
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._authorizer = authorizer

    def handle(self, request: OffsetDeleteRequest, exchange: Exchange) -> None:
        self._authorizer.check(exchange, AclOperation.DELETE, AclResourceType.GROUP, request.group_id)
        request.topics, forbidden = split_readable(self._authorizer, exchange, request.topics)
        request.topics, unknown = split_existing(request.topics, self._topics)
        refused = [_not_deleted(topic, topic.partitions, _FORBIDDEN) for topic in forbidden]
        refused += [_not_deleted(topic, missing, _UNKNOWN) for topic, missing in unknown]

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


def _not_deleted(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition], code: int
) -> OffsetDeleteResponseTopic:
    answers = [
        OffsetDeleteResponsePartition(partition_index=wanted.partition_index, error_code=code) for wanted in partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)
