"""Partitions are asked for by topic, and each has an offset or an error."""

from __future__ import annotations

from braidlog.client.requests.list_offsets import (
    IsolationLevel,
    ListedOffset,
    OffsetQuery,
    OffsetSpec,
    list_offsets_request,
    listed_offsets,
)
from braidlog.core.protocol_errors import NotLeaderOrFollowerError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

FIRST, SECOND, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_partitions_are_asked_for_by_topic() -> None:
    queries = {FIRST: OffsetQuery(OffsetSpec.LATEST, 5), OTHER: OffsetQuery(17), SECOND: OffsetQuery(-2)}
    request = list_offsets_request(queries, IsolationLevel.READ_COMMITTED, 900)
    assert (request.replica_id, request.isolation_level, request.timeout_ms) == (-1, 1, 900)
    asked = [
        (topic.name, each.partition_index, each.timestamp, each.current_leader_epoch)
        for topic in request.topics
        for each in topic.partitions
    ]
    assert asked == [("a", 0, -1, 5), ("a", 1, -2, -1), ("b", 0, 17, -1)]


def test_each_partition_has_an_offset_or_an_error() -> None:
    partitions = [
        ListOffsetsPartitionResponse(partition_index=0, offset=42, timestamp=7, leader_epoch=3),
        ListOffsetsPartitionResponse(partition_index=1, error_code=NotLeaderOrFollowerError.code),
    ]
    older = ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=[9])
    found = listed_offsets(
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name="a", partitions=partitions),
                ListOffsetsTopicResponse(name="b", partitions=[older]),
            ]
        )
    )
    assert found[FIRST] == ListedOffset(42, 7, 3)
    assert isinstance(found[SECOND], NotLeaderOrFollowerError)
    assert "a-1" in str(found[SECOND])
    assert found[OTHER] == ListedOffset(9, -1, -1)
