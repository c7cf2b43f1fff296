from __future__ import annotations

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.groups.group_administration import DeleteGroupsHandler, DescribeGroupsHandler
from braidlog.core.protocol_errors import (
    GroupIdNotFoundError,
    NonEmptyGroupError,
    NotCoordinatorError,
)
from braidlog.security.acls import OPERATIONS, AclOperation, AclResourceType, operations_of
from braidlog.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest
from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_group
from support.group_requests import join
from support.many_items import NAMES, answer_of, exchange, nobodys_coordinator


def test_very_many_are_deleted_in_order() -> None:
    handler = DeleteGroupsHandler(nobodys_coordinator(), Authorizer())
    answer = answer_of(handler.handle(DeleteGroupsRequest(groups_names=[*NAMES, NAMES[0]]), exchange(2)))
    assert [result.group_id for result in answer.results] == NAMES
    assert {result.error_code for result in answer.results} == {NotCoordinatorError.code}


@on_broker
async def test_a_group_is_described_and_deleted_when_it_is_empty(broker: AskedBroker) -> None:
    member_id = (await join(broker, "g")).member_id
    request = DescribeGroupsRequest(groups=["g", "g", "gone"], include_authorized_operations=True)
    found, missing = (await broker.ask(request, 5)).groups
    assert (found.group_state, [each.member_id for each in found.members]) == ("CompletingRebalance", [member_id])
    assert operations_of(found.authorized_operations) == frozenset(OPERATIONS[AclResourceType.GROUP])
    assert (missing.group_state, missing.error_code) == ("Dead", 0)
    _, missing = (await broker.ask(DescribeGroupsRequest(groups=["g", "gone"]), 6)).groups
    assert missing.error_code == GroupIdNotFoundError.code
    deletion = DeleteGroupsRequest(groups_names=["g", "gone"])
    answer = await broker.ask(deletion, 2)
    assert {each.group_id: each.error_code for each in answer.results} == {
        "g": NonEmptyGroupError.code,
        "gone": GroupIdNotFoundError.code,
    }
    await broker.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)]), 5)
    assert (await broker.ask(deletion, 2)).results[0].error_code == 0


@on_broker
async def test_a_group_of_the_consumer_protocol_is_described_by_its_own_request(broker: AskedBroker) -> None:
    await broker.create("t", 2)
    await broker.await_coordinator("g")
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    await broker.ask(beat, 0)
    found, missing = (await broker.ask(ConsumerGroupDescribeRequest(group_ids=["g", "gone"]), 0)).groups
    assert (found.error_code, [each.member_id for each in found.members]) == (0, ["m"])
    assert missing.error_code == GroupIdNotFoundError.code


@pytest.mark.parametrize("version", [5, 6])
def test_a_failure_is_told_for_each_group(version: int) -> None:
    error = NotCoordinatorError("elsewhere")
    (group,) = DescribeGroupsHandler.error_response(DescribeGroupsRequest(groups=["g"]), version, error).groups
    assert (group.group_id, group.error_code) == ("g", error.code)
    assert group.error_message == ("elsewhere" if version >= 6 else None)
    (result,) = DeleteGroupsHandler.error_response(DeleteGroupsRequest(groups_names=["g"]), 2, error).results
    assert (result.group_id, result.error_code) == ("g", error.code)


@on_broker
async def test_groups_that_are_not_the_clients_are_refused(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    for name in ("mine", "other"):
        await join(restricted.admin, name)
    restricted.rules(allow_group("mine", AclOperation.READ), allow_group("gone", AclOperation.DELETE))
    refused = "GROUP_AUTHORIZATION_FAILED"
    asked = {"groups": ["mine", "other"], "include_authorized_operations": True}
    assert await restricted.ask("DescribeGroups", 5, **asked) == f"[mine may DESCRIBE|READ, other {refused}]"
    consumer = {"group_ids": ["mine", "other"], "include_authorized_operations": True}
    answer = await restricted.ask("ConsumerGroupDescribe", 0, **consumer)
    assert answer == f"[mine GROUP_ID_NOT_FOUND, other {refused}]", "the first is of the other protocol"
    answer = await restricted.ask("DeleteGroups", 2, groups_names=["gone", "mine", "other"])
    assert answer == f"[gone GROUP_ID_NOT_FOUND, mine {refused}, other {refused}]"
