"""Groups as ListGroups and DescribeGroups show them."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.coordinator.group.classic.group import CONSUMER, ClassicGroup
from braidlog.coordinator.group.classic.states import STABLE
from braidlog.coordinator.group.group import Group
from braidlog.wire.generated.describe_groups import DescribedGroup, DescribedGroupMember
from braidlog.wire.generated.list_groups import ListedGroup, ListGroupsRequest


def listed_groups(groups: Iterable[Group], request: ListGroupsRequest) -> list[ListedGroup]:
    """Those that the filters, which are not particular about case, let through; an empty one lets all."""
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    return [
        _listed(group)
        for group in groups
        if (not states or group.state_name().lower() in states) and (not kinds or group.kind in kinds)
    ]


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=(group.protocol_type or "") if isinstance(group, ClassicGroup) else CONSUMER,
        group_state=group.state_name(),
        group_type=group.kind,
    )


def described(group: ClassicGroup) -> DescribedGroup:
    # Only in a stable group the protocol is what all members agreed upon; the assignment is the last one they had.
    stable = group.state == STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_of(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
