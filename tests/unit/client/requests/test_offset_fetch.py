"""Committed offsets of several groups, from brokers of any age."""

from __future__ import annotations

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.requests.offset_fetch import GroupMemberEpoch, fetched_offsets, offset_fetch_requests
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FIRST, SECOND, THIRD = (TopicPartition("a", number) for number in range(3))


def test_one_request_for_all_groups() -> None:
    wanted = {"g": [FIRST, SECOND], "h": None}
    (request,) = offset_fetch_requests(9, wanted, require_stable=True, member=GroupMemberEpoch("m", 4))
    assert request.require_stable
    assert [(each.group_id, each.member_id, each.member_epoch) for each in request.groups] == [
        ("g", "m", 4),
        ("h", "m", 4),
    ]
    assert request.groups[0].topics is not None
    assert [(each.name, each.partition_indexes) for each in request.groups[0].topics] == [("a", [0, 1])]
    assert request.groups[1].topics is None
    (older,) = offset_fetch_requests(8, wanted, require_stable=False, member=GroupMemberEpoch("m", 4))
    assert older.groups[0].member_id is None
    partitions = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, metadata="x", committed_leader_epoch=2),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
        OffsetFetchResponsePartitions(partition_index=2, error_code=88),
    ]
    group = OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseTopics(name="a", partitions=partitions)])
    refused = OffsetFetchResponseGroup(group_id="h", error_code=16)
    found = fetched_offsets(request, OffsetFetchResponse(groups=[group, refused]))
    assert found["g"].offsets == {FIRST: OffsetAndMetadata(5, "x", 2), SECOND: None}
    assert found["g"].errors == {THIRD: 88}
    assert found["h"].error_code == 16


def test_one_request_each_for_an_older_broker() -> None:
    first, second = offset_fetch_requests(7, {"g": [FIRST], "h": None}, require_stable=True)
    assert (first.group_id, second.group_id, second.topics) == ("g", "h", None)
    assert first.require_stable
    assert not offset_fetch_requests(6, {"g": [FIRST]}, require_stable=True)[0].require_stable
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=3, metadata=None)
    topic = OffsetFetchResponseTopic(name="a", partitions=[partition])
    found = fetched_offsets(first, OffsetFetchResponse(topics=[topic]))
    assert found["g"].offsets == {FIRST: OffsetAndMetadata(3, "", -1)}
