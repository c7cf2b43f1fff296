"""Groups of either protocol and any protocol type: list, describe, remove members, delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import BrokerStrategy, CoordinatorNode
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, names_of
from braidlog.client.broker_errors import broker_error, check
from braidlog.client.requests.leave_group import (
    LEAVE_GROUP,
    LeavingMember,
    leave_group_requests,
    left_members,
    takes_static_members,
)
from braidlog.core.protocol_errors import (
    NONE,
    GroupIdNotFoundError,
    ProtocolError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from braidlog.core.types import TopicPartition
from braidlog.security.acls import AclOperation, operations_of
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated import consumer_group_describe as consumer_layout
from braidlog.wire.generated import describe_groups as classic_layout
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolAssignment
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from braidlog.wire.generated.leave_group import LeaveGroupResponse
from braidlog.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version

DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
DELETE_GROUPS: Final = 42
CONSUMER_GROUP_DESCRIBE: Final = 69

# Later versions add fields at the end, so that this one reads them too.
_NEWEST_ASSIGNMENT: Final = 3
# The first version with the operations that are allowed.
_WITH_OPERATIONS: Final = 3


class GroupType(StrEnum):
    """The protocol that a group follows."""

    UNKNOWN = "unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        return next((each for each in cls if each.value == str(value).lower()), cls.UNKNOWN)


class GroupState(StrEnum):
    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    # In the consumer protocol only.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, value: object) -> GroupState:
        return cls.UNKNOWN

    @property
    def is_inactive(self) -> bool:
        """Such a group has no members: its offsets may be changed from outside."""
        return self in (GroupState.EMPTY, GroupState.DEAD)


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    # The name of a static member.
    instance_id: str | None
    client_id: str
    host: str
    # None where the members share out something else than partitions, or in a form that only they know.
    assignment: tuple[TopicPartition, ...] | None
    # What the coordinator wants it to have; only known in the consumer protocol.
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    type: GroupType
    # What its members do: "consumer", "connect", or "" for a group that only commits.
    protocol_type: str
    # None of brokers before 2.6.
    state: GroupState | None
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: GroupType
    protocol_type: str
    state: GroupState
    assignor: str
    members: tuple[GroupMember, ...]
    coordinator: CoordinatorNode
    # None unless they were asked for.
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def is_foreign(self) -> bool:
        """Its members share out something else than partitions."""
        return self.protocol_type not in ("", GroupType.CONSUMER)


def list_groups(
    driver: AdminApiDriver, *, states: Many[GroupState | str] = (), types: Many[GroupType | str] = ()
) -> list[ListedGroup]:
    request = ListGroupsRequest(states_filter=names_of(states, "states"), types_filter=names_of(types, "types"))

    async def listed(node: BrokerConnection, some: list[int]) -> dict[int, ListGroupsResponse]:
        answer = await node.call(LIST_GROUPS, request, ListGroupsResponse)
        check(answer.error_code, f"groups of broker {some[0]}")
        return {some[0]: answer}

    broker_ids = driver.broker_ids()
    answers = driver.ask(broker_ids, BrokerStrategy(lambda broker_id: broker_id), listed).raise_for_errors()
    found = {
        each.group_id: ListedGroup(
            each.group_id,
            GroupType(each.group_type or GroupType.CLASSIC),
            each.protocol_type,
            GroupState(each.group_state) if each.group_state else None,
            broker_id,
        )
        for broker_id, answer in answers.items()
        for each in answer.groups
    }
    return [found[name] for name in sorted(found)]


def describe_groups(
    driver: AdminApiDriver, groups: Many[str], *, authorized_operations: bool = False
) -> Results[str, GroupDescription]:
    async def consumer(node: BrokerConnection, names: list[str]) -> dict[str, GroupDescription | ProtocolError]:
        if not node.offers(CONSUMER_GROUP_DESCRIBE):
            return {name: UnsupportedVersionError() for name in names}
        request = consumer_layout.ConsumerGroupDescribeRequest(
            group_ids=names, include_authorized_operations=authorized_operations
        )
        answer_type = consumer_layout.ConsumerGroupDescribeResponse
        answer = await node.call(CONSUMER_GROUP_DESCRIBE, request, answer_type)
        return {each.group_id: _consumer(driver, each) for each in answer.groups}

    async def classic(node: BrokerConnection, names: list[str]) -> dict[str, GroupDescription | ProtocolError]:
        asks = authorized_operations and node.version_for(DESCRIBE_GROUPS) >= _WITH_OPERATIONS
        request = classic_layout.DescribeGroupsRequest(groups=names, include_authorized_operations=asks)
        answer = await node.call(DESCRIBE_GROUPS, request, classic_layout.DescribeGroupsResponse)
        return {each.group_id: _classic(driver, each) for each in answer.groups}

    found = driver.ask(names_of(groups, "groups"), driver.groups, consumer).outcomes
    # ConsumerGroupDescribe knows neither classic groups nor those that do not exist.
    not_consumer = (GroupIdNotFoundError, UnsupportedVersionError)
    rest = [name for name, each in found.items() if isinstance(each, not_consumer)]
    found |= driver.ask(rest, driver.groups, classic).outcomes
    return Results(found)


def _consumer(driver: AdminApiDriver, answer: consumer_layout.DescribedGroup) -> GroupDescription | ProtocolError:
    name = answer.group_id
    if answer.error_code != NONE:
        return broker_error(answer.error_code, f"group {name}", answer.error_message)
    return GroupDescription(
        name,
        GroupType.CONSUMER,
        GroupType.CONSUMER.value,
        GroupState(answer.group_state),
        answer.assignor_name,
        _consumer_members(answer.members),
        driver.groups.place_of(name),
        operations_of(answer.authorized_operations),
    )


def _classic(driver: AdminApiDriver, answer: classic_layout.DescribedGroup) -> GroupDescription | ProtocolError:
    name = answer.group_id
    if answer.error_code == NONE and answer.group_state == GroupState.DEAD:
        return broker_error(GroupIdNotFoundError.code, f"group {name}")
    if answer.error_code != NONE:
        # Brokers word this one in their own way; ours says what to do.
        message = None if answer.error_code == GroupIdNotFoundError.code else answer.error_message
        return broker_error(answer.error_code, f"group {name}", message)
    return GroupDescription(
        name,
        GroupType.CLASSIC,
        answer.protocol_type,
        GroupState(answer.group_state),
        answer.protocol_data,
        _classic_members(answer.members, answer.protocol_type == GroupType.CONSUMER),
        driver.groups.place_of(name),
        operations_of(answer.authorized_operations),
    )


def delete_groups(driver: AdminApiDriver, groups: Many[str]) -> Results[str, None]:
    async def delete(node: BrokerConnection, names: list[str]) -> dict[str, ProtocolError | None]:
        request = DeleteGroupsRequest(groups_names=names)
        results = (await node.call(DELETE_GROUPS, request, DeleteGroupsResponse)).results
        return {
            each.group_id: None if each.error_code == NONE else broker_error(each.error_code, f"group {each.group_id}")
            for each in results
        }

    return driver.ask(names_of(groups, "groups"), driver.groups, delete)


def remove_members(
    driver: AdminApiDriver,
    group: str,
    *,
    instance_ids: Many[str] = (),
    member_ids: Many[str] = (),
    reason: str,
) -> Results[str, None]:
    wanted = [LeavingMember(instance_id=each) for each in names_of(instance_ids, "instance_ids")]
    wanted += [LeavingMember(member_id=each) for each in names_of(member_ids, "member_ids")]
    if not wanted:
        wanted = [
            LeavingMember(instance_id=each.instance_id) if each.instance_id else LeavingMember(member_id=each.member_id)
            for each in describe_groups(driver, [group])[group].members
        ]
    if not wanted:
        return Results({})

    async def remove(node: BrokerConnection, _: list[str]) -> dict[str, dict[str, ProtocolError | None]]:
        return {group: await _removed(node, group, wanted, reason)}

    return Results(driver.ask([group], driver.groups, remove)[group])


async def _removed(
    node: BrokerConnection, group: str, members: list[LeavingMember], reason: str
) -> dict[str, ProtocolError | None]:
    version = node.version_for(LEAVE_GROUP)
    if not takes_static_members(version) and any(each.instance_id is not None for each in members):
        raise UnsupportedVersionError(f"the broker at {node.address} is too old to know static members")
    found: dict[str, ProtocolError | None] = {}
    for request in leave_group_requests(version, group, members, reason):
        answer = await node.call(LEAVE_GROUP, request, LeaveGroupResponse)
        if request.members:
            check(answer.error_code, f"group {group}")
        found |= {name: _left(code, group, name) for name, code in left_members(request, answer).items()}
    return found


def _left(error_code: int, group: str, member: str) -> ProtocolError | None:
    if error_code == NONE:
        return None
    unknown = error_code == UnknownMemberIdError.code
    message = (
        "the group has no such member of the classic protocol; describe it to see who is in it" if unknown else None
    )
    return broker_error(error_code, f"member {member} of group {group}", message)


def _consumer_members(members: Iterable[consumer_layout.Member]) -> tuple[GroupMember, ...]:
    found = [
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _partitions(each.assignment.topic_partitions),
            _partitions(each.target_assignment.topic_partitions),
            each.member_epoch,
        )
        for each in members
    ]
    return tuple(sorted(found, key=lambda member: member.member_id))


def _classic_members(
    members: Iterable[classic_layout.DescribedGroupMember], shares_partitions: bool
) -> tuple[GroupMember, ...]:
    found = [
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            read_assignment(bytes(each.member_assignment)) if shares_partitions else None,
        )
        for each in members
    ]
    return tuple(sorted(found, key=lambda member: member.member_id))


def read_assignment(content: bytes) -> tuple[TopicPartition, ...] | None:
    """What the leader of a classic group gave to a member; nothing while the group rebalances."""
    if not content:
        return ()
    try:
        version = min(read_version_prefix(content), _NEWEST_ASSIGNMENT)
        assignment = ConsumerProtocolAssignment.decode(reader_after_version(content), version)
    except MalformedError:
        return None
    return tuple(
        sorted(
            TopicPartition(topic.topic, partition)
            for topic in assignment.assigned_partitions
            for partition in topic.partitions
        )
    )


def _partitions(topics: Sequence[consumer_layout.TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(topic.topic_name, partition) for topic in topics for partition in topic.partitions)
    )
