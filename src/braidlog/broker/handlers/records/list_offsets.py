"""ListOffsets (api 2): the earliest, the latest, or the first offset at or after a time.

v0   a list of segment starts, newest first           v4   leader epochs      v8    earliest local (-4)
v1   one offset and its timestamp                     v7   max timestamp (-3) v9    latest tiered (-5)
v2   isolation level                                                          v11   earliest pending upload (-6)
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.protocol_errors import (
    InvalidRequestError,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from braidlog.net.exchange import Exchange
from braidlog.replication.partition import READ_COMMITTED
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

# Instead of a broker's id.
CONSUMER_ID: Final = -1
DEBUGGING_CONSUMER_ID: Final = -2
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class ListOffsetsHandler:
    def __init__(self, registry: PartitionRegistry, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authorizer = authorizer

    def handle(self, request: ListOffsetsRequest, exchange: Exchange) -> Generator[None, None, ListOffsetsResponse]:
        asked: set[tuple[str, int]] = set()
        twice: set[tuple[str, int]] = set()
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                (twice if key in asked else asked).add(key)
        authorize = self._authorizer.authorize
        response = ListOffsetsResponse(topics=[])
        refused: list[ListOffsetsTopicResponse] = []
        for topic in request.topics:
            if not authorize(exchange, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name):
                refused.append(_forbidden(topic))
                yield
                continue
            answers: list[ListOffsetsPartitionResponse] = []
            for partition in topic.partitions:
                repeated = (topic.name, partition.partition_index) in twice
                answers.append(self._offset(topic.name, partition, request, exchange.version, repeated))
                yield
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        response.topics += refused
        return response

    def _offset(
        self, topic: str, wanted: ListOffsetsPartition, request: ListOffsetsRequest, version: int, repeated: bool
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
        try:
            if repeated:
                raise InvalidRequestError("the partition is named twice")
            partition = self._registry.require(topic, wanted.partition_index)
            partition.check_epoch(wanted.current_leader_epoch)
            # One that compares replicas asks each of them.
            is_debugging = request.replica_id == DEBUGGING_CONSUMER_ID
            log = partition.require_replica() if is_debugging else partition.require_log()
            limit = log.log_end_offset
            settled = True
            if request.replica_id == CONSUMER_ID:
                limit = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
                settled = partition.is_settled(log)
            if version == 0:
                answer.old_style_offsets = _segment_starts(log, wanted.timestamp, wanted.max_num_offsets, limit)
            else:
                latest_epoch = partition.leader_epoch if request.replica_id == -1 else log.leader_epochs.latest
                _find(log, wanted.timestamp, limit, latest_epoch, version, answer)
                if not settled and wanted.timestamp != EARLIEST and wanted.timestamp != EARLIEST_LOCAL:
                    _refuse_unsettled(wanted.timestamp, version, answer)
        except Exception as problem:
            answer.error_code = to_protocol_error(problem, f"list offsets of {topic}-{wanted.partition_index}").code
        return answer

    @staticmethod
    def error_response(request: ListOffsetsRequest, version: int, error: ProtocolError) -> None:
        """There is no such response: the connection is closed."""


def _forbidden(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    code = TopicAuthorizationFailedError.code
    answers = [
        ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
        for wanted in topic.partitions
    ]
    return ListOffsetsTopicResponse(name=topic.name, partitions=answers)


def _find(
    log: UnifiedLog,
    timestamp: int,
    limit: int,
    latest_epoch: int,
    version: int,
    answer: ListOffsetsPartitionResponse,
) -> None:
    epoch = -1
    if log.append_policy.magic == 0 and timestamp not in (LATEST, EARLIEST):
        raise UnsupportedForMessageFormatError(
            f"message format 0 of {log.topic_partition} has no timestamps to look for: raise message.format.version"
        )
    if timestamp == LATEST:
        answer.offset = limit
        epoch = latest_epoch
    elif timestamp == EARLIEST or (timestamp == EARLIEST_LOCAL and version >= 8):
        answer.offset = log.log_start_offset
        epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
    elif timestamp == MAX_TIMESTAMP and version >= 7:
        newest = log.max_timestamp_offset()
        if newest is not None and newest.offset < limit:
            answer.timestamp, answer.offset, epoch = newest.timestamp, newest.offset, newest.leader_epoch
    elif (timestamp == LATEST_TIERED and version >= 9) or (timestamp == EARLIEST_PENDING_UPLOAD and version >= 11):
        # Nothing is ever tiered here: the answer is "none".
        pass
    elif timestamp >= 0:
        found = log.offset_for_timestamp(timestamp, limit)
        if found is not None:
            answer.timestamp, answer.offset, epoch = found.timestamp, found.offset, found.leader_epoch
    else:
        raise UnsupportedVersionError(f"{timestamp} is no timestamp that ListOffsets v{version} knows")
    if version >= 4:
        answer.leader_epoch = epoch


def _refuse_unsettled(timestamp: int, version: int, answer: ListOffsetsPartitionResponse) -> None:
    """A new leader does not know yet what the one before it had committed: its latest could go back (KIP-207)."""
    if timestamp == LATEST or answer.offset < 0:
        raise OffsetNotAvailableError if version >= 5 else LeaderNotAvailableError


def _segment_starts(log: UnifiedLog, timestamp: int, most: int, limit: int) -> list[int]:
    """What v0 answers: the starts of segments last written before a time, newest first, the end before all."""
    if timestamp < EARLIEST:
        raise UnsupportedVersionError(f"{timestamp} is no timestamp that ListOffsets v0 knows")
    starts = [max(segment.base_offset, log.log_start_offset) for segment in log.segments]
    if timestamp == EARLIEST:
        return starts[:1][:most]
    if timestamp != LATEST:
        written = [segment.max_timestamp for segment in log.segments]
        starts = [start for start, last in zip(starts, written, strict=True) if last <= timestamp]
    newest_first = [start for start in reversed(starts) if start < limit or start == log.log_start_offset]
    if timestamp == LATEST and (not newest_first or newest_first[0] != limit):
        newest_first.insert(0, limit)
    return newest_first[:most]
