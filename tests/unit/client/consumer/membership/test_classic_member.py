"""The classic protocol's machine: what each answer makes of a member."""

from __future__ import annotations

import pytest

from braidlog.client.consumer.membership.classic import ClassicMember, Next
from braidlog.client.consumer.membership.states import Classic
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.join_group import JoinGroupResponse
from braidlog.wire.generated.sync_group import SyncGroupResponse

OFFERS = [("range", b"all"), ("sticky", b"also all")]


def member(instance_id: str | None = None) -> ClassicMember:
    return ClassicMember("g", instance_id, 3_000, 9_000)


def joined(leader: str = "other", *, skip: bool = False, instance: str | None = None) -> ClassicMember:
    one = member(instance)
    one.begin_join()
    one.on_join(
        JoinGroupResponse(generation_id=4, member_id="me", leader=leader, protocol_name="range", skip_assignment=skip)
    )
    return one


def stable(instance: str | None = None) -> ClassicMember:
    one = joined(instance=instance)
    one.on_sync(SyncGroupResponse())
    one.taken()
    return one


def test_a_new_member_says_all_it_offers() -> None:
    one = member("static")
    one.begin_join()
    request = one.join_request(OFFERS)
    assert (request.member_id, request.group_instance_id, request.protocol_type) == ("", "static", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (3_000, 9_000)
    assert [(each.name, each.metadata) for each in request.protocols] == OFFERS


def test_it_comes_again_with_the_id_it_was_given() -> None:
    one = member()
    one.begin_join()
    answer = JoinGroupResponse(error_code=errors.MemberIdRequiredError.code, member_id="mine")
    assert one.on_join(answer) is Next.AT_ONCE
    assert one.join_request(OFFERS).member_id == "mine"
    assert one.is_in(Classic.JOINING)


def test_a_follower_syncs_and_a_leader_shares_out_first() -> None:
    assert joined("other").is_in(Classic.SYNCING)
    leader = joined("me")
    assert leader.is_in(Classic.ASSIGNING)
    leader.shares_are_out()
    request = leader.sync_request([("me", b"1"), ("you", b"2")])
    assert [(each.member_id, each.assignment) for each in request.assignments] == [("me", b"1"), ("you", b"2")]
    assert (request.generation_id, request.member_id, request.protocol_name) == (4, "me", "range")


def test_a_leader_that_is_to_skip_the_assignment_still_leads() -> None:
    one = joined("me", skip=True)
    assert one.leads
    assert one.is_in(Classic.SYNCING)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (errors.CoordinatorLoadInProgressError, Next.LATER),
        (errors.RebalanceInProgressError, Next.LATER),
        (errors.NotCoordinatorError, Next.ELSEWHERE),
        (errors.CoordinatorNotAvailableError, Next.ELSEWHERE),
        (errors.UnknownMemberIdError, Next.RESET),
    ],
)
def test_joins_that_are_tried_again(error: type[ProtocolError], step: Next) -> None:
    one = member()
    one.begin_join()
    one.member_id = "old"
    assert one.on_join(JoinGroupResponse(error_code=error.code)) is step
    assert one.member_id == ("" if step is Next.RESET else "old")


@pytest.mark.parametrize(
    "error",
    [
        errors.InconsistentGroupProtocolError,
        errors.InvalidSessionTimeoutError,
        errors.GroupAuthorizationFailedError,
        errors.GroupMaxSizeReachedError,
        errors.InvalidGroupIdError,
        errors.FencedInstanceIdError,
        errors.UnknownServerError,
    ],
)
def test_joins_that_the_program_must_hear_of(error: type[ProtocolError]) -> None:
    one = member("static")
    one.begin_join()
    with pytest.raises(error, match=r"group g: .+") as raised:
        one.on_join(JoinGroupResponse(error_code=error.code))
    assert one.is_in(Classic.OUT)
    assert raised.value.message


@pytest.mark.parametrize(
    ("error", "step", "state", "keeps_id"),
    [
        (errors.RebalanceInProgressError, Next.REJOIN, Classic.JOINING, True),
        (errors.NotCoordinatorError, Next.ELSEWHERE, Classic.JOINING, True),
        (errors.CoordinatorLoadInProgressError, Next.LATER, Classic.JOINING, True),
        (errors.UnknownMemberIdError, Next.RESET, Classic.OUT, False),
        (errors.IllegalGenerationError, Next.RESET, Classic.OUT, True),
    ],
)
def test_syncs_that_are_refused(error: type[ProtocolError], step: Next, state: Classic, keeps_id: bool) -> None:
    one = joined()
    assert one.on_sync(SyncGroupResponse(error_code=error.code)) is step
    assert one.is_in(state)
    assert one.member_id == ("me" if keeps_id else "")
    assert one.rejoin is not None


def test_a_rebalance_is_heard_of_by_heartbeat() -> None:
    one = stable()
    assert one.rejoin is None
    assert one.on_refusal(one.identity, errors.RebalanceInProgressError.code) is Next.REJOIN
    assert one.rejoin == "the group is rebalancing"
    assert one.is_known, "what it has is not lost"


@pytest.mark.parametrize("error", [errors.UnknownMemberIdError, errors.IllegalGenerationError])
def test_one_that_is_forgotten_has_lost_everything(error: type[ProtocolError]) -> None:
    one = stable()
    assert one.on_refusal(one.identity, error.code) is Next.RESET
    assert one.is_in(Classic.OUT)
    assert not one.is_known
    assert one.member_id == ("" if error is errors.UnknownMemberIdError else "me")


def test_an_answer_to_a_life_that_is_over_changes_nothing() -> None:
    one = stable()
    before = one.identity
    one.begin_join()
    one.on_join(JoinGroupResponse(generation_id=5, member_id="me", leader="other", protocol_name="range"))
    assert one.on_refusal(before, errors.IllegalGenerationError.code) is Next.GO_ON
    assert one.generation == 5


def test_a_member_whose_instance_came_again_is_told_so() -> None:
    one = stable("static")
    with pytest.raises(errors.FencedInstanceIdError, match="'static'"):
        one.on_refusal(one.identity, errors.FencedInstanceIdError.code)
    assert one.is_in(Classic.OUT)


def test_only_dynamic_members_say_goodbye() -> None:
    one = stable()
    assert one.says_goodbye
    assert one.leave_request(2, "why").member_id == "me"
    newer = one.leave_request(5, "w" * 300)
    assert [(each.member_id, len(each.reason or "")) for each in newer.members] == [("me", 255)]
    assert not stable("static").says_goodbye


def test_moves_that_make_no_sense_are_refused_with_a_history() -> None:
    one = member()
    with pytest.raises(RuntimeError, match="group g cannot go from OUT to STABLE; it came by OUT"):
        one.taken()
