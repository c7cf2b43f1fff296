"""LeaveGroup: takes members out of a classic group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from braidlog.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

LEAVE_GROUP: Final = 13
# The first versions that take several members, static ones among them, and a reason.
_SEVERAL_MEMBERS: Final = 3
_REASONS: Final = 5
# A reason is shown in the log of the coordinator, which takes no longer one.
LONGEST_REASON: Final = 255


class LeavingMember(NamedTuple):
    """A static member by instance id, any other by member id."""

    member_id: str = ""
    instance_id: str | None = None

    @property
    def name(self) -> str:
        return self.instance_id or self.member_id


def takes_static_members(version: int) -> bool:
    return version >= _SEVERAL_MEMBERS


def leave_group_requests(
    version: int, group_id: str, members: Sequence[LeavingMember], reason: str
) -> list[LeaveGroupRequest]:
    """One request for all members, or one for each where the broker takes no more."""
    if version < _SEVERAL_MEMBERS:
        return [LeaveGroupRequest(group_id=group_id, member_id=each.member_id) for each in members]
    given = reason[:LONGEST_REASON] if version >= _REASONS else None
    leaving = [
        MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id, reason=given) for each in members
    ]
    return [LeaveGroupRequest(group_id=group_id, members=leaving)]


def left_members(request: LeaveGroupRequest, response: LeaveGroupResponse) -> dict[str, int]:
    """By the id that named a member its error code; the response's own code is about the group."""
    if not request.members:
        return {request.member_id: response.error_code}
    return {each.group_instance_id or each.member_id: each.error_code for each in response.members}
