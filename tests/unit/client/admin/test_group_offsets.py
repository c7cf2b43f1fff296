"""What groups committed, from brokers of any age, and commits from outside."""

from __future__ import annotations

from braidlog.client.admin import group_offsets as api
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from support.admin_fakes import ScriptedCluster, ScriptedNode
from support.retry_clock import RetryClock

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def test_offsets_of_several_groups() -> None:
    def fetch(request: OffsetFetchRequest) -> OffsetFetchResponse:
        assert [group.topics for group in request.groups] == [None, None]
        committed = OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=7, committed_leader_epoch=2, metadata="note"
        )
        never = OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1)
        topic = OffsetFetchResponseTopics(name="orders", partitions=[committed, never])
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id="a", topics=[topic]),
                OffsetFetchResponseGroup(group_id="b", error_code=69),
            ]
        )

    cluster = ScriptedCluster({1: ScriptedNode({api.OFFSET_FETCH: fetch})})
    found = admin_over(cluster).list_group_offsets(["a", "b"])
    assert found == {"a": {ORDERS_0: OffsetAndMetadata(7, "note", 2)}, "b": {}}


def test_offsets_from_a_broker_that_takes_one_group_at_a_time() -> None:
    def fetch(request: OffsetFetchRequest) -> OffsetFetchResponse:
        committed = OffsetFetchResponsePartition(partition_index=0, committed_offset=len(request.group_id))
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="orders", partitions=[committed])])

    cluster = ScriptedCluster({1: ScriptedNode({api.OFFSET_FETCH: fetch}, {api.OFFSET_FETCH: 7})})
    found = admin_over(cluster).list_group_offsets(["a", "bb"])
    assert [found[name][ORDERS_0].offset for name in ("a", "bb")] == [1, 2]


def test_committing_from_outside() -> None:
    codes = [16, 0]

    def commit(request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = codes.pop(0)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)

    node = ScriptedNode({api.OFFSET_COMMIT: commit})
    groups = admin_over(AdminApiDriver(ScriptedCluster({1: node}), new_retry=RetryClock().retry))
    wanted = {ORDERS_1: OffsetAndMetadata(5, "note", 2), ORDERS_0: 3}
    assert groups.alter_group_offsets("g", wanted) == {ORDERS_0: None, ORDERS_1: None}
    request = node.asked[-1]
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    (topic,) = request.topics
    assert [
        (each.partition_index, each.committed_offset, each.committed_metadata, each.committed_leader_epoch)
        for each in topic.partitions
    ] == [(0, 3, "", -1), (1, 5, "note", 2)]
