"""Groups of either protocol, their offsets, and what is said of each that cannot be told of."""

from __future__ import annotations

from typing import Any

from client_fakes import Patience
from coordinator_fakes import ScriptedCluster, ScriptedNode
from hypothesis import given
from hypothesis import strategies as st

from braidlog.client import groups as api
from braidlog.client.cluster import LIST_OFFSETS
from braidlog.client.group_members import read_assignment
from braidlog.client.groups import Committed, Group, Groups
from braidlog.client.log_offsets import look_up
from braidlog.core.protocol_errors import GroupIdNotFoundError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated import consumer_group_describe as newer
from braidlog.wire.generated import describe_groups as older
from braidlog.wire.generated.consumer_protocol import AssignedTopicPartition, ConsumerProtocolAssignment
from braidlog.wire.generated.list_groups import ListedGroup, ListGroupsResponse
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
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
from braidlog.wire.layouts import versioned

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def assignment(version: int = 1) -> bytes:
    topic = AssignedTopicPartition(topic="orders", partitions=[1, 0])
    return versioned(ConsumerProtocolAssignment(assigned_partitions=[topic]), version)


def describing(older_group: older.DescribedGroup, newer_group: newer.DescribedGroup | None = None) -> Groups:
    answers: dict[int, Any] = {
        api.DESCRIBE_GROUPS: lambda request: older.DescribeGroupsResponse(groups=[older_group]),
    }
    if newer_group is not None:
        answers[api.CONSUMER_GROUP_DESCRIBE] = lambda request: newer.ConsumerGroupDescribeResponse(
            groups=[newer_group]
        )
    return Groups(ScriptedCluster({1: ScriptedNode(answers)}))


def test_a_classic_group_is_unknown_to_the_newer_description() -> None:
    member = older.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_assignment=assignment(), group_instance_id="s"
    )
    group = older.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member]
    )
    found = describing(group, newer.DescribedGroup(group_id="g", error_code=69)).describe(["g"])["g"]
    assert isinstance(found, Group)
    assert (found.type, found.state, found.assignor, found.is_foreign) == ("classic", "Stable", "range", False)
    assert found.members[0].assignment == [ORDERS_0, ORDERS_1]
    assert found.members[0].instance_id == "s"
    # A broker from before the newer protocol is not asked for it.
    assert describing(group).describe(["g"])["g"] == found


def test_a_group_of_the_newer_protocol() -> None:
    has = newer.Assignment(topic_partitions=[newer.TopicPartitions(topic_name="orders", partitions=[0])])
    wants = newer.Assignment(topic_partitions=[newer.TopicPartitions(topic_name="orders", partitions=[1, 0])])
    member = newer.Member(member_id="m", member_epoch=4, client_id="c", assignment=has, target_assignment=wants)
    group = newer.DescribedGroup(
        group_id="g", group_state="Reconciling", assignor_name="uniform", members=[member]
    )
    found = describing(older.DescribedGroup(group_id="g"), group).describe(["g"])["g"]
    assert isinstance(found, Group)
    assert (found.type, found.assignor) == ("consumer", "uniform")
    assert found.members[0].assignment == [ORDERS_0]
    assert found.members[0].target == [ORDERS_0, ORDERS_1]
    assert found.members[0].epoch == 4


def test_a_group_that_does_not_exist_is_told_alike_by_every_version() -> None:
    for group in (
        older.DescribedGroup(group_id="g", group_state="Dead"),
        older.DescribedGroup(group_id="g", error_code=69, error_message="Group g not found."),
    ):
        found = describing(group).describe(["g"])["g"]
        assert isinstance(found, GroupIdNotFoundError)
        assert found.message == "group g: it does not exist; `braidlog groups list` shows what does"


def test_members_that_share_out_something_else() -> None:
    member = older.DescribedGroupMember(member_id="m", member_assignment=b"\0\1whatever")
    group = older.DescribedGroup(group_id="g", group_state="Stable", protocol_type="connect", members=[member])
    found = describing(group).describe(["g"])["g"]
    assert isinstance(found, Group)
    assert found.is_foreign
    assert found.members[0].assignment is None


@given(st.binary(max_size=40))
def test_any_assignment_can_be_looked_at(content: bytes) -> None:
    found = read_assignment(content)
    assert found is None or all(isinstance(each, TopicPartition) for each in found)


def test_assignments_of_every_version_and_none() -> None:
    assert read_assignment(b"") == []
    for version in range(4):
        assert read_assignment(assignment(version)) == [ORDERS_0, ORDERS_1]
    # A later version has more at the end.
    assert read_assignment(b"\0\x09" + assignment()[2:] + b"more") == [ORDERS_0, ORDERS_1]


def test_all_brokers_are_asked_for_their_groups() -> None:
    def lists(*names: str) -> ScriptedNode:
        groups = [ListedGroup(group_id=name, group_state="Empty") for name in names]
        return ScriptedNode({api.LIST_GROUPS: lambda request: ListGroupsResponse(groups=groups)})

    listed = Groups(ScriptedCluster({1: lists("c", "a"), 2: lists("b")})).listed()
    assert [(each.group_id, each.coordinator, each.type) for each in listed] == [
        ("a", 1, "classic"),
        ("b", 2, "classic"),
        ("c", 1, "classic"),
    ]


def test_a_broker_that_loads_is_waited_for() -> None:
    answers = [ListGroupsResponse(error_code=14), ListGroupsResponse()]
    node = ScriptedNode({api.LIST_GROUPS: lambda request: answers.pop(0)})
    patience = Patience()
    assert Groups(ScriptedCluster({1: node}), patience.retry).listed() == []
    assert len(patience.naps) == 1


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
    assert Groups(cluster).offsets(["a", "b"]) == {"a": {ORDERS_0: Committed(7, 2, "note")}, "b": {}}


def test_offsets_from_a_broker_that_takes_one_group_at_a_time() -> None:
    def fetch(request: OffsetFetchRequest) -> OffsetFetchResponse:
        committed = OffsetFetchResponsePartition(partition_index=0, committed_offset=len(request.group_id))
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="orders", partitions=[committed])])

    cluster = ScriptedCluster({1: ScriptedNode({api.OFFSET_FETCH: fetch}, {api.OFFSET_FETCH: 7})})
    found = Groups(cluster).offsets(["a", "bb"])
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
    groups = Groups(ScriptedCluster({1: node}), Patience().retry)
    assert groups.commit("g", {ORDERS_1: 5, ORDERS_0: 3}) == {ORDERS_0: 0, ORDERS_1: 0}
    request = node.asked[-1]
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    (topic,) = request.topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 3), (1, 5)]


def test_log_ends_of_what_is_there_and_what_is_not() -> None:
    def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=each.partition_index + 40)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    nodes = {1: ScriptedNode({LIST_OFFSETS: offsets}), 2: ScriptedNode({LIST_OFFSETS: offsets})}
    cluster = ScriptedCluster(nodes, {"orders": [1, 2, -1]})
    gone = TopicPartition("gone", 0)
    beyond = TopicPartition("orders", 9)
    leaderless = TopicPartition("orders", 2)
    patience = Patience()
    found = look_up(cluster, dict.fromkeys([ORDERS_0, ORDERS_1, gone, beyond, leaderless], -1), patience.retry)
    assert (found[ORDERS_0], found[ORDERS_1]) == (40, 41)
    assert isinstance(found[gone], UnknownTopicOrPartitionError)
    assert "has no partition 9; it has 3" in str(found[beyond])
    assert "no leader now" in str(found[leaderless])
    # Only the leader is worth waiting for; what was found is not asked for again.
    assert patience.naps
    assert len(nodes[1].asked) == len(nodes[2].asked) == 1
