"""Members leave together, or one by one where the broker takes no more."""

from __future__ import annotations

from braidlog.client.requests.leave_group import (
    LONGEST_REASON,
    LeavingMember,
    leave_group_requests,
    left_members,
    takes_static_members,
)
from braidlog.wire.generated.leave_group import LeaveGroupResponse, MemberResponse

STATIC, DYNAMIC = LeavingMember(instance_id="static"), LeavingMember("dynamic")


def test_members_leave_together() -> None:
    (request,) = leave_group_requests(5, "g", [STATIC, DYNAMIC], "r" * 300)
    assert [(each.member_id, each.group_instance_id) for each in request.members] == [("", "static"), ("dynamic", None)]
    assert request.members[0].reason == "r" * LONGEST_REASON
    assert leave_group_requests(4, "g", [DYNAMIC], "r")[0].members[0].reason is None
    answers = [
        MemberResponse(group_instance_id="static", member_id="x"),
        MemberResponse(member_id="dynamic", error_code=25),
    ]
    assert left_members(request, LeaveGroupResponse(members=answers)) == {"static": 0, "dynamic": 25}


def test_members_leave_one_by_one_at_an_older_broker() -> None:
    assert not takes_static_members(2)
    first, second = leave_group_requests(2, "g", [DYNAMIC, LeavingMember("other")], "r")
    assert (first.member_id, second.member_id) == ("dynamic", "other")
    assert left_members(second, LeaveGroupResponse(error_code=25)) == {"other": 25}
