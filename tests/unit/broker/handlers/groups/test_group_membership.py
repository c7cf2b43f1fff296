from __future__ import annotations

import pytest

from braidlog.broker.handlers.groups.group_membership import JoinGroupHandler, SyncGroupHandler
from braidlog.core.protocol_errors import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_group
from support.group_requests import join


@on_broker
async def test_a_member_joins_syncs_beats_and_leaves(broker: AskedBroker) -> None:
    joined = await join(broker, "g")
    assert (joined.leader, joined.generation_id) == (joined.member_id, 1)
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"part")
    sync = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=joined.member_id, protocol_type="consumer", protocol_name="range",
        assignments=[mine],
    )  # fmt: skip
    answer = await broker.ask(sync, 5)
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"part")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await broker.ask(beat, 4)).error_code == 0
    beat.generation_id = 7
    assert (await broker.ask(beat, 4)).error_code == IllegalGenerationError.code
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
    (left,) = (await broker.ask(leave, 5)).members
    assert left.error_code == 0
    assert (await broker.ask(beat, 4)).error_code == UnknownMemberIdError.code


@on_broker
async def test_a_member_of_the_consumer_protocol_is_assigned_by_the_broker(broker: AskedBroker) -> None:
    await broker.create("t", 2)
    await broker.await_coordinator("g")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    answer = await broker.ask(request, 0)
    assert answer.error_code == 0
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[0, 1]]


@on_broker
async def test_the_consumer_protocol_is_off_beside_brokers_of_another_kind(broker: AskedBroker) -> None:
    await broker.create("t", 1)
    await broker.await_coordinator("g")
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert (await broker.ask(beat, 0)).error_code == 0
    broker.parts.coordination.is_cluster = True
    broker.parts.members.others = broker.parts.members._ours = frozenset()
    # A broker that was announced and not looked at yet ends no group.
    assert (broker.parts.members.all_ours, (await broker.ask(beat, 0)).error_code) == (False, 0)
    broker.parts.members.others = frozenset({2})
    refused = await broker.ask(beat, 0)
    assert refused.error_code == UnsupportedVersionError.code
    assert "group.protocol=classic" in refused.error_message
    (described,) = (await broker.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 0)).groups
    assert described.error_code == UnsupportedVersionError.code
    broker.parts.members.others = frozenset()
    assert (await broker.ask(beat, 0)).error_code == 0
    # A broker of a cluster would have more to stop.
    broker.parts.coordination.is_cluster = False


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_failed_join_in_the_form_of_each_version(version: int, name: str | None) -> None:
    request = JoinGroupRequest(group_id="g", member_id="m")
    answer = JoinGroupHandler.error_response(request, version, NotCoordinatorError())
    assert (answer.error_code, answer.member_id, answer.protocol_name) == (NotCoordinatorError.code, "m", name)
    turned_away = JoinGroupHandler.error_response(request, version, GroupMaxSizeReachedError())
    assert turned_away.member_id == ""
    failed = SyncGroupHandler.error_response(SyncGroupRequest(), 5, NotCoordinatorError())
    assert failed.error_code == NotCoordinatorError.code


@on_broker
async def test_members_may_read_their_group(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    joined = await join(restricted.admin, "g")
    member = {"group_id": "g", "member_id": joined.member_id}
    asked = (
        ("JoinGroup", 7, {**member, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}),
        ("SyncGroup", 4, {**member, "generation_id": 1}),
        ("Heartbeat", 4, {**member, "generation_id": 1}),
        ("LeaveGroup", 1, member),
        ("ConsumerGroupHeartbeat", 0, {**member, "member_epoch": 1}),
    )
    restricted.rules(allow_group("g", AclOperation.DESCRIBE), allow_group("other", AclOperation.READ))
    for api, version, request in asked:
        assert await restricted.ask(api, version, **request) == "GROUP_AUTHORIZATION_FAILED", api
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await restricted.admin.ask(beat, 4)).error_code in (0, 27), "the member is there, whatever was tried"
    restricted.rules(allow_group("g", AclOperation.READ))
    assert await restricted.ask("LeaveGroup", 1, **member) == "OK"
