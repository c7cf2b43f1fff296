from __future__ import annotations

from braidlog.broker.handlers.groups.list_groups import ListGroupsHandler
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.list_groups import ListGroupsRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_cluster, allow_group
from support.group_requests import join


@on_broker
async def test_groups_of_all_partitions_are_listed_by_state_and_type(broker: AskedBroker) -> None:
    assert (await broker.ask(ListGroupsRequest(), 5)).groups == []
    groups = [f"g{number}" for number in range(5)]
    for group in groups:
        await join(broker, group)
    answer = await broker.ask(ListGroupsRequest(), 5)
    assert sorted(each.group_id for each in answer.groups) == groups
    assert {(each.group_type.lower(), each.protocol_type) for each in answer.groups} == {("classic", "consumer")}
    assert (await broker.ask(ListGroupsRequest(states_filter=["Empty"]), 5)).groups == []
    assert (await broker.ask(ListGroupsRequest(types_filter=["consumer"]), 5)).groups == []
    assert len((await broker.ask(ListGroupsRequest(types_filter=["classic"]), 5)).groups) == 5


def test_a_failure_has_its_code() -> None:
    error = CoordinatorLoadInProgressError()
    assert ListGroupsHandler.error_response(ListGroupsRequest(), 5, error).error_code == error.code


@on_broker
async def test_groups_that_may_not_be_described_are_left_out(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    for name in ("mine", "other"):
        await join(restricted.admin, name)
    assert await restricted.ask("ListGroups", 4) == "OK"
    restricted.rules(allow_group("mine", AclOperation.READ))
    assert await restricted.ask("ListGroups", 4) == "[mine]"
    restricted.rules(allow_cluster(AclOperation.DESCRIBE))
    assert await restricted.ask("ListGroups", 4) == "[mine, other]"
