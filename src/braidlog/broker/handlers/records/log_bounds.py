"""Where a log begins and its leader epochs end: DeleteRecords, OffsetForLeaderEpoch."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.protocol_errors import (
    NONE,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ProtocolError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from braidlog.core.time_slice import run_in_slices
from braidlog.net.exchange import Exchange
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.security.acls import CLUSTER_RESOURCE, AclOperation, AclResourceType
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

    def __init__(self, registry: PartitionRegistry, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authorizer = authorizer

    def handle(
        self, request: OffsetForLeaderEpochRequest, exchange: Exchange
    ) -> Generator[None, None, OffsetForLeaderEpochResponse]:
        authorize = self._authorizer.authorize
        # A follower need not see the topics themselves.
        follows = authorize(exchange, AclOperation.CLUSTER_ACTION, *CLUSTER_RESOURCE, log_if_denied=False)
        response = OffsetForLeaderEpochResponse(topics=[])
        refused: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            describe = AclOperation.DESCRIBE
            if not follows and not authorize(exchange, describe, AclResourceType.TOPIC, topic.topic):
                code = TopicAuthorizationFailedError.code
                forbidden = [EpochEndOffset(partition=each.partition, error_code=code) for each in topic.partitions]
                refused.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=forbidden))
                yield
                continue
            answers: list[EpochEndOffset] = []
            for wanted in topic.partitions:
                answers.append(self._end(topic.topic, wanted))
                yield
            response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        response.topics += refused
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
    """DeleteRecords (api 21): move the start of partitions forward; -1 means up to the high watermark.

    It is answered when every live replica has moved its start, or the request's time-out is over.
    """

    def __init__(self, registry: PartitionRegistry, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authorizer = authorizer

    def handle(
        self, request: DeleteRecordsRequest, exchange: Exchange
    ) -> Generator[None, None, DeleteRecordsResponse] | Coroutine[Any, Any, DeleteRecordsResponse]:
        for topic in request.topics:
            for wanted in topic.partitions:
                partition = self._registry.get(topic.name, wanted.partition_index)
                if partition is not None and partition.progress is not None:
                    return self._delete_everywhere(request, exchange)
        return self._delete_in_slices(request, exchange)

    def _delete_in_slices(
        self, request: DeleteRecordsRequest, exchange: Exchange
    ) -> Generator[None, None, DeleteRecordsResponse]:
        response = DeleteRecordsResponse(topics=[])
        for topic in request.topics:
            if not self._authorizer.authorize(exchange, AclOperation.DELETE, AclResourceType.TOPIC, topic.name):
                code = TopicAuthorizationFailedError.code
                forbidden = [_refused(wanted.partition_index, code) for wanted in topic.partitions]
                response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=forbidden))
                yield
                continue
            answers: list[DeleteRecordsPartitionResult] = []
            for wanted in topic.partitions:
                answers.append(self._delete(topic.name, wanted))
                yield
            response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
        return response

    def _delete(self, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        answer = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
        try:
            partition = self._registry.require(topic, wanted.partition_index)
            log = partition.require_log()
            if "delete" not in log.settings.cleanup_policy:
                raise PolicyViolationError("records of a topic that is only compacted cannot be deleted")
            offset = log.high_watermark if wanted.offset == TO_HIGH_WATERMARK else wanted.offset
            if offset < 0 or offset > log.high_watermark:
                raise OffsetOutOfRangeError
            partition.delete_records(offset)
            answer.low_watermark = log.log_start_offset
        except Exception as problem:
            answer.error_code = to_protocol_error(problem, f"delete records of {topic}-{wanted.partition_index}").code
        return answer

    async def _delete_everywhere(self, request: DeleteRecordsRequest, exchange: Exchange) -> DeleteRecordsResponse:
        response = await run_in_slices(self._delete_in_slices(request, exchange))
        assert isinstance(response, DeleteRecordsResponse)
        loop = asyncio.get_running_loop()
        waits: list[tuple[Partition, DeleteRecordsPartitionResult, asyncio.Future[None]]] = []
        for topic in response.topics:
            for answer in topic.partitions:
                partition = self._registry.get(topic.name, answer.partition_index)
                if answer.error_code == NONE and partition is not None:
                    waits.append((partition, answer, loop.create_future()))
        callbacks = [partial(_set_done, future) for _, _, future in waits]
        for (partition, answer, _), done in zip(waits, callbacks, strict=True):
            # Where this broker's own log starts now.
            partition.when_deleted(answer.low_watermark, done)
        if waits:
            await asyncio.wait([future for _, _, future in waits], timeout=max(request.timeout_ms, 0) / 1000)
        for (partition, answer, future), done in zip(waits, callbacks, strict=True):
            partition.forget_deletion(done)
            try:
                answer.low_watermark = partition.low_watermark()
                if not future.done():
                    answer.error_code = RequestTimedOutError.code
            except ProtocolError as problem:
                answer.error_code, answer.low_watermark = problem.code, -1
        return response

    @staticmethod
    def error_response(request: DeleteRecordsRequest, version: int, error: ProtocolError) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[_refused(wanted.partition_index, error.code) for wanted in topic.partitions],
                )
                for topic in request.topics
            ]
        )


def _refused(index: int, code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=code)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
