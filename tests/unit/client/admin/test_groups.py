"""Groups of either protocol, their offsets, and what is said of each that cannot be told of."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.admin import groups as api
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.groups import read_assignment
from braidlog.core.protocol_errors import GroupIdNotFoundError, UnknownMemberIdError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated import consumer_group_describe as newer
from braidlog.wire.generated import describe_groups as older
from braidlog.wire.generated.consumer_protocol import AssignedTopicPartition, ConsumerProtocolAssignment
from braidlog.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from braidlog.wire.generated.list_groups import ListedGroup, ListGroupsResponse
from braidlog.wire.version_prefix import version_prefixed_bytes
from support.admin_fakes import ScriptedCluster, ScriptedNode
from support.retry_clock import RetryClock

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def assignment(version: int = 1) -> bytes:
    topic = AssignedTopicPartition(topic="orders", partitions=[1, 0])
    return version_prefixed_bytes(ConsumerProtocolAssignment(assigned_partitions=[topic]), version)


def describing(older_group: older.DescribedGroup, newer_group: newer.DescribedGroup | None = None) -> Admin:
    answers: dict[int, Any] = {
        api.DESCRIBE_GROUPS: lambda request: older.DescribeGroupsResponse(groups=[older_group]),
    }
    if newer_group is not None:
        answers[api.CONSUMER_GROUP_DESCRIBE] = lambda request: newer.ConsumerGroupDescribeResponse(groups=[newer_group])
    return admin_over(ScriptedCluster({1: ScriptedNode(answers)}))


def test_a_classic_group_is_unknown_to_the_newer_description() -> None:
    member = older.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_assignment=assignment(), group_instance_id="s"
    )
    group = older.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member]
    )
    found = describing(group, newer.DescribedGroup(group_id="g", error_code=69)).describe_groups(["g"])["g"]
    assert (found.type, found.state, found.assignor, found.is_foreign) == ("classic", "Stable", "range", False)
    assert found.members[0].assignment == (ORDERS_0, ORDERS_1)
    assert found.members[0].instance_id == "s"
    # A broker from before the newer protocol is not asked for it.
    assert describing(group).describe_groups(["g"])["g"] == found


def test_a_group_of_the_newer_protocol() -> None:
    has = newer.Assignment(topic_partitions=[newer.TopicPartitions(topic_name="orders", partitions=[0])])
    wants = newer.Assignment(topic_partitions=[newer.TopicPartitions(topic_name="orders", partitions=[1, 0])])
    member = newer.Member(member_id="m", member_epoch=4, client_id="c", assignment=has, target_assignment=wants)
    group = newer.DescribedGroup(group_id="g", group_state="Reconciling", assignor_name="uniform", members=[member])
    found = describing(older.DescribedGroup(group_id="g"), group).describe_groups(["g"])["g"]
    assert (found.type, found.assignor) == ("consumer", "uniform")
    assert found.members[0].assignment == (ORDERS_0,)
    assert found.members[0].target == (ORDERS_0, ORDERS_1)
    assert found.members[0].epoch == 4


def test_a_group_that_does_not_exist_is_told_alike_by_every_version() -> None:
    for group in (
        older.DescribedGroup(group_id="g", group_state="Dead"),
        older.DescribedGroup(group_id="g", error_code=69, error_message="Group g not found."),
    ):
        found = describing(group).describe_groups(["g"]).errors["g"]
        assert isinstance(found, GroupIdNotFoundError)
        assert found.message == "group g: it does not exist; `braidlog groups list` shows what does"


def test_members_that_share_out_something_else() -> None:
    member = older.DescribedGroupMember(member_id="m", member_assignment=b"\0\1whatever")
    group = older.DescribedGroup(group_id="g", group_state="Stable", protocol_type="connect", members=[member])
    found = describing(group).describe_groups(["g"])["g"]
    assert found.is_foreign
    assert found.members[0].assignment is None


@given(st.binary(max_size=40))
def test_any_assignment_can_be_looked_at(content: bytes) -> None:
    found = read_assignment(content)
    assert found is None or all(isinstance(each, TopicPartition) for each in found)


def test_assignments_of_every_version_and_none() -> None:
    assert read_assignment(b"") == ()
    for version in range(4):
        assert read_assignment(assignment(version)) == (ORDERS_0, ORDERS_1)
    # A later version has more at the end.
    assert read_assignment(b"\0\x09" + assignment()[2:] + b"more") == (ORDERS_0, ORDERS_1)


def test_all_brokers_are_asked_for_their_groups() -> None:
    def lists(*names: str) -> ScriptedNode:
        groups = [ListedGroup(group_id=name, group_state="Empty") for name in names]
        return ScriptedNode({api.LIST_GROUPS: lambda request: ListGroupsResponse(groups=groups)})

    listed = admin_over(ScriptedCluster({1: lists("c", "a"), 2: lists("b")})).list_groups()
    assert [(each.group_id, each.coordinator, each.type) for each in listed] == [
        ("a", 1, "classic"),
        ("b", 2, "classic"),
        ("c", 1, "classic"),
    ]


def test_a_broker_that_loads_is_waited_for() -> None:
    answers = [ListGroupsResponse(error_code=14), ListGroupsResponse()]
    node = ScriptedNode({api.LIST_GROUPS: lambda request: answers.pop(0)})
    patience = RetryClock()
    driver = AdminApiDriver(ScriptedCluster({1: node}), new_retry=patience.retry)
    assert admin_over(driver).list_groups() == []
    assert len(patience.sleeps) == 1


def test_members_are_removed_by_either_id() -> None:
    def leave(request: LeaveGroupRequest) -> LeaveGroupResponse:
        members = [
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=25 if each.member_id == "gone" else 0,
            )
            for each in request.members
        ]
        return LeaveGroupResponse(members=members)

    node = ScriptedNode({api.LEAVE_GROUP: leave})
    calls = admin_over(ScriptedCluster({1: node}))
    removed = calls.remove_members("g", instance_ids=["static"], member_ids=["m", "gone"], reason="x" * 300)
    assert (removed["static"], removed["m"]) == (None, None)
    assert list(removed.errors) == ["gone"]
    assert isinstance(removed.errors["gone"], UnknownMemberIdError)
    assert "has no such member" in str(removed.errors["gone"])
    (_, request) = node.asked
    assert [(each.member_id, each.group_instance_id) for each in request.members] == [
        ("", "static"),
        ("m", None),
        ("gone", None),
    ]
    assert {len(each.reason) for each in request.members} == {255}


def test_all_members_are_removed_when_none_is_named() -> None:
    members = [
        older.DescribedGroupMember(member_id="a"),
        older.DescribedGroupMember(member_id="b-17", group_instance_id="b"),
    ]
    group = older.DescribedGroup(group_id="g", group_state="Stable", protocol_type="x", members=members)

    def leave(request: LeaveGroupRequest) -> LeaveGroupResponse:
        left = [MemberResponse(member_id=e.member_id, group_instance_id=e.group_instance_id) for e in request.members]
        return LeaveGroupResponse(members=left)

    node = ScriptedNode(
        {
            api.DESCRIBE_GROUPS: lambda request: older.DescribeGroupsResponse(groups=[group]),
            api.LEAVE_GROUP: leave,
        }
    )
    assert admin_over(ScriptedCluster({1: node})).remove_members("g") == {"a": None, "b": None}
    # A broker from before static members is told one by one.
    node.versions[api.LEAVE_GROUP] = 2
    node.answers[api.LEAVE_GROUP] = lambda request: LeaveGroupResponse()
    calls = admin_over(ScriptedCluster({1: node}))
    assert calls.remove_members("g", member_ids=["a", "c"]) == {"a": None, "c": None}
    assert [request.member_id for request in node.asked[-2:]] == ["a", "c"]
