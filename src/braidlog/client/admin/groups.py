"""Groups of either protocol and any protocol type: listed, described, rid of members, deleted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from braidlog.client.admin.acl_operations import AclOperation, operations_of
from braidlog.client.admin.broker_connection import BrokerConnection
from braidlog.client.admin.coordinator_strategy import CoordinatorNode, GroupAdminCalls
from braidlog.client.admin.group_members import GroupMember, classic_members, consumer_members
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, BrokerStrategy
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
from braidlog.wire.generated import consumer_group_describe as newer_layout
from braidlog.wire.generated import describe_groups as classic_layout
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from braidlog.wire.generated.leave_group import LeaveGroupResponse
from braidlog.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse

DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
DELETE_GROUPS: Final = 42
CONSUMER_GROUP_DESCRIBE: Final = 69

# The first version that tells what is allowed.
_TELLS_OPERATIONS: Final = 3
_REASON: Final = "member was removed by an admin"


class GroupType(StrEnum):
    """Of the protocol that a group follows."""

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
    # Of the newer protocol.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, value: object) -> GroupState:
        return cls.UNKNOWN

    @property
    def is_inactive(self) -> bool:
        """Nobody is in such a group: its offsets may be changed from outside."""
        return self in (GroupState.EMPTY, GroupState.DEAD)


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


class GroupCalls(GroupAdminCalls):
    def list_groups(
        self, *, states: Many[GroupState | str] = (), types: Many[GroupType | str] = ()
    ) -> list[ListedGroup]:
        """All groups, from every broker, by name; or only those in some states, of some types."""
        request = ListGroupsRequest(states_filter=names_of(states, "states"), types_filter=names_of(types, "types"))

        def listed(node: BrokerConnection, some: list[int]) -> dict[int, ListGroupsResponse]:
            answer = node.call(LIST_GROUPS, request, ListGroupsResponse)
            check(answer.error_code, f"groups of broker {some[0]}")
            return {some[0]: answer}

        broker_ids = self._driver.ask_one(AnyBrokerStrategy(), lambda _: self._driver.cluster.broker_ids)
        answers = self._driver.ask(broker_ids, BrokerStrategy(lambda broker_id: broker_id), listed).raise_for_errors()
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
        self, groups: Many[str], *, authorized_operations: bool = False
    ) -> Results[str, GroupDescription]:
        """Groups with their members; one that does not exist is a GroupIdNotFoundError."""

        def newer(node: BrokerConnection, names: list[str]) -> dict[str, GroupDescription | ProtocolError]:
            if not node.offers(CONSUMER_GROUP_DESCRIBE):
                return {name: UnsupportedVersionError() for name in names}
            request = newer_layout.ConsumerGroupDescribeRequest(
                group_ids=names, include_authorized_operations=authorized_operations
            )
            answer_type = newer_layout.ConsumerGroupDescribeResponse
            answer = node.call(CONSUMER_GROUP_DESCRIBE, request, answer_type)
            return {each.group_id: self._newer(each) for each in answer.groups}

        def classic(node: BrokerConnection, names: list[str]) -> dict[str, GroupDescription | ProtocolError]:
            asks = authorized_operations and node.version_for(DESCRIBE_GROUPS) >= _TELLS_OPERATIONS
            request = classic_layout.DescribeGroupsRequest(groups=names, include_authorized_operations=asks)
            answer = node.call(DESCRIBE_GROUPS, request, classic_layout.DescribeGroupsResponse)
            return {each.group_id: self._classic(each) for each in answer.groups}

        found = self._driver.ask(names_of(groups, "groups"), self._groups, newer).outcomes
        # Those of the older protocol are unknown to the newer description, as those that do not exist are.
        not_newer = (GroupIdNotFoundError, UnsupportedVersionError)
        rest = [name for name, each in found.items() if isinstance(each, not_newer)]
        found |= self._driver.ask(rest, self._groups, classic).outcomes
        return Results(found)

    def _newer(self, answer: newer_layout.DescribedGroup) -> GroupDescription | ProtocolError:
        name = answer.group_id
        if answer.error_code != NONE:
            return broker_error(answer.error_code, f"group {name}", answer.error_message)
        return GroupDescription(
            name,
            GroupType.CONSUMER,
            GroupType.CONSUMER.value,
            GroupState(answer.group_state),
            answer.assignor_name,
            consumer_members(answer.members),
            self._groups.place_of(name),
            operations_of(answer.authorized_operations),
        )

    def _classic(self, answer: classic_layout.DescribedGroup) -> GroupDescription | ProtocolError:
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
            classic_members(answer.members, answer.protocol_type == GroupType.CONSUMER),
            self._groups.place_of(name),
            operations_of(answer.authorized_operations),
        )

    def delete_groups(self, groups: Many[str]) -> Results[str, None]:
        """Delete groups without members, and with them all that they committed."""

        def delete(node: BrokerConnection, names: list[str]) -> dict[str, ProtocolError | None]:
            request = DeleteGroupsRequest(groups_names=names)
            results = node.call(DELETE_GROUPS, request, DeleteGroupsResponse).results
            return {
                each.group_id: None
                if each.error_code == NONE
                else broker_error(each.error_code, f"group {each.group_id}")
                for each in results
            }

        return self._driver.ask(names_of(groups, "groups"), self._groups, delete)

    def remove_members(
        self,
        group: str,
        *,
        instance_ids: Many[str] = (),
        member_ids: Many[str] = (),
        reason: str = _REASON,
    ) -> Results[str, None]:
        """Take members out of a classic group: static ones by instance id, others by member id; all if none is named.

        One that still runs joins again. The keys of the results are the ids given.
        """
        wanted = [LeavingMember(instance_id=each) for each in names_of(instance_ids, "instance_ids")]
        wanted += [LeavingMember(member_id=each) for each in names_of(member_ids, "member_ids")]
        if not wanted:
            wanted = [
                LeavingMember(instance_id=each.instance_id)
                if each.instance_id
                else LeavingMember(member_id=each.member_id)
                for each in self.describe_groups([group])[group].members
            ]
        if not wanted:
            return Results({})

        def remove(node: BrokerConnection, _: list[str]) -> dict[str, dict[str, ProtocolError | None]]:
            return {group: _removed(node, group, wanted, reason)}

        return Results(self._driver.ask([group], self._groups, remove)[group])


def _removed(
    node: BrokerConnection, group: str, members: list[LeavingMember], reason: str
) -> dict[str, ProtocolError | None]:
    version = node.version_for(LEAVE_GROUP)
    if not takes_static_members(version) and any(each.instance_id is not None for each in members):
        raise UnsupportedVersionError(f"the broker at {node.address} is too old to know static members")
    found: dict[str, ProtocolError | None] = {}
    for request in leave_group_requests(version, group, members, reason):
        answer = node.call(LEAVE_GROUP, request, LeaveGroupResponse)
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
