"""Offsets are committed by topic; a static member is named where the broker knows such."""

from __future__ import annotations

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.requests.offset_commit import offset_commit_codes, offset_commit_request
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST, SECOND = TopicPartition("a", 0), TopicPartition("a", 1)


def test_offsets_are_committed_by_topic() -> None:
    offsets = {FIRST: OffsetAndMetadata(4, "m", 2), SECOND: OffsetAndMetadata(5)}
    request = offset_commit_request(7, "g", offsets, generation=3, member_id="me", instance_id="static")
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (3, "me", "static")
    (topic,) = request.topics
    assert [
        (each.partition_index, each.committed_offset, each.committed_metadata, each.committed_leader_epoch)
        for each in topic.partitions
    ] == [(0, 4, "m", 2), (1, 5, "", -1)]
    assert offset_commit_request(6, "g", offsets, instance_id="static").group_instance_id is None


def test_each_partition_has_its_code() -> None:
    partitions = [
        OffsetCommitResponsePartition(partition_index=0),
        OffsetCommitResponsePartition(partition_index=1, error_code=25),
    ]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="a", partitions=partitions)])
    assert offset_commit_codes(response) == {FIRST: 0, SECOND: 25}
