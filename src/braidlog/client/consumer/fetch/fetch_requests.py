"""Fetch requests: how they are built and sent, and what a response says of one partition."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from braidlog.client.consumer.fetch.completed_fetch import AbortedRange, CompletedFetch, end_of_batches
from braidlog.client.consumer.fetch.fetch_session_handler import FetchRequestData
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.settings import Settings
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    from_code,
)
from braidlog.core.slices import ByteSlice
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

FETCH: Final = 1
# The newest version that names topics; later ones give their ids instead.
_NEWEST_BY_NAME: Final = 12

# The partition is on another broker, or does not exist: metadata has to be updated.
_STALE_METADATA_CODES: Final = frozenset(
    error.code
    for error in (
        NotLeaderOrFollowerError,
        ReplicaNotAvailableError,
        KafkaStorageError,
        FencedLeaderEpochError,
        LeaderNotAvailableError,
        UnknownTopicOrPartitionError,
        UnknownTopicIdError,
        InconsistentTopicIdError,
    )
)


class FetchErrorKind(Enum):
    OUT_OF_RANGE = "the log does not have the offset"
    STALE_METADATA = "update metadata, then try again"
    # Also a broker that is behind what we know of the leader's epoch, and will catch up.
    RETRIABLE = "try again"
    FATAL = "trying again does not help"


def error_kind(code: int) -> FetchErrorKind:
    if code == OffsetOutOfRangeError.code:
        return FetchErrorKind.OUT_OF_RANGE
    if code in _STALE_METADATA_CODES:
        return FetchErrorKind.STALE_METADATA
    return FetchErrorKind.RETRIABLE if from_code(code).retriable else FetchErrorKind.FATAL


def newest_version(*, by_id: bool) -> int | None:
    """The newest version to use; none where any will do, since all topics have ids."""
    return None if by_id else _NEWEST_BY_NAME


def uses_ids(version: int) -> bool:
    return version > _NEWEST_BY_NAME


class FetchedRange(NamedTuple):
    """Record batches of one partition, and the offset behind the last whole one."""

    fetch: CompletedFetch
    next_offset: int


class FetchRequests:
    """Builds and sends requests; what settings say is the same in all of them."""

    def __init__(self, settings: Settings, *, min_bytes: int | None = None, rack: str | None = None) -> None:
        self.max_wait_ms = settings.number("fetch.max.wait.ms")
        self._min_bytes = settings.number("fetch.min.bytes") if min_bytes is None else min_bytes
        self._isolation_level = settings.isolation_level()
        # Brokers send those that name a rack to a replica there (KIP-392).
        self._rack = settings.text("client.rack") if rack is None else rack

    async def send(
        self,
        connection: PipelinedConnection,
        plan: Callable[[bool], FetchRequestData],
        max_bytes: int,
        timeout_s: float,
        *,
        by_id: bool,
        max_wait_ms: int | None = None,
    ) -> FetchResponse:
        """`by_id`: all topics have ids. Whether the broker takes them is what `plan` is given."""
        version = connection.version_for(FETCH, newest_version(by_id=by_id))
        request = self.build(plan(uses_ids(version)), max_bytes, max_wait_ms=max_wait_ms)
        response = await connection.post(FETCH, version, request, timeout_s)
        assert isinstance(response, FetchResponse)
        return response

    def build(self, data: FetchRequestData, max_bytes: int, *, max_wait_ms: int | None = None) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for each, asked in data.asked.items():
            partition = FetchPartition(
                partition=each.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.max_bytes,
            )
            topic = topics.get(each.topic)
            if topic is None:
                topic = topics[each.topic] = FetchTopic(topic=each.topic, topic_id=asked.topic_id)
            topic.partitions.append(partition)
        forgotten: dict[tuple[str, bytes], ForgottenTopic] = {}
        for each, topic_id in data.forgotten.items():
            gone = forgotten.get((each.topic, topic_id))
            if gone is None:
                gone = forgotten[(each.topic, topic_id)] = ForgottenTopic(topic=each.topic, topic_id=topic_id)
            gone.partitions.append(each.partition)
        return FetchRequest(
            max_wait_ms=self.max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=max_bytes,
            isolation_level=self._isolation_level,
            session_id=data.session_id,
            session_epoch=data.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
            rack_id=self._rack,
        )


def records_of(data: PartitionData) -> ByteSlice | None:
    """The bytes of record batches, if there are any."""
    records = data.records
    return records if isinstance(records, ByteSlice) and records.size > 0 else None


def aborted_of(data: PartitionData) -> list[AbortedRange]:
    return [AbortedRange(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]


def completed_fetch(
    state: PartitionState, offset: int, data: PartitionData, *, check_crcs: bool
) -> FetchedRange | None:
    """The record batches that were fetched from an offset, if there are any."""
    records = records_of(data)
    if records is None:
        return None
    next_offset = end_of_batches(records.buffer, records.start, records.end, offset)
    fetch = CompletedFetch(
        state, records.buffer, records.start, records.end, offset, aborted_of(data), check_crcs=check_crcs
    )
    return FetchedRange(fetch, next_offset)
