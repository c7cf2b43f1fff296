"""The classic protocol's machine: what each answer makes of a member."""

from __future__ import annotations

import pytest

from braidlog.client.consumer.group.classic_member import ClassicMember, ClassicMemberState, NextStep
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


def test_a_new_member_sends_all_its_assignors() -> None:
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
    assert one.on_join(answer) is NextStep.RETRY
    assert one.join_request(OFFERS).member_id == "mine"
    assert one.is_in(ClassicMemberState.JOINING)


def test_a_follower_syncs_and_a_leader_assigns_first() -> None:
    assert joined("other").is_in(ClassicMemberState.SYNCING)
    leader = joined("me")
    assert leader.is_in(ClassicMemberState.ASSIGNING)
    leader.assignment_done()
    request = leader.sync_request([("me", b"1"), ("you", b"2")])
    assert [(each.member_id, each.assignment) for each in request.assignments] == [("me", b"1"), ("you", b"2")]
    assert (request.generation_id, request.member_id, request.protocol_name) == (4, "me", "range")


def test_a_leader_that_is_to_skip_the_assignment_still_leads() -> None:
    one = joined("me", skip=True)
    assert one.leads
    assert one.is_in(ClassicMemberState.SYNCING)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (errors.CoordinatorLoadInProgressError, NextStep.RETRY_LATER),
        (errors.RebalanceInProgressError, NextStep.RETRY_LATER),
        (errors.NotCoordinatorError, NextStep.FIND_COORDINATOR),
        (errors.CoordinatorNotAvailableError, NextStep.FIND_COORDINATOR),
        (errors.UnknownMemberIdError, NextStep.RESET),
    ],
)
def test_joins_that_are_tried_again(error: type[ProtocolError], step: NextStep) -> None:
    one = member()
    one.begin_join()
    one.member_id = "old"
    assert one.on_join(JoinGroupResponse(error_code=error.code)) is step
    assert one.member_id == ("" if step is NextStep.RESET else "old")


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
def test_joins_that_raise(error: type[ProtocolError]) -> None:
    one = member("static")
    one.begin_join()
    with pytest.raises(error, match=r"group g: .+") as raised:
        one.on_join(JoinGroupResponse(error_code=error.code))
    assert one.is_in(ClassicMemberState.UNJOINED)
    assert raised.value.message


@pytest.mark.parametrize(
    ("error", "step", "state", "keeps_id"),
    [
        (errors.RebalanceInProgressError, NextStep.REJOIN, ClassicMemberState.JOINING, True),
        (errors.NotCoordinatorError, NextStep.FIND_COORDINATOR, ClassicMemberState.JOINING, True),
        (errors.CoordinatorLoadInProgressError, NextStep.RETRY_LATER, ClassicMemberState.JOINING, True),
        (errors.UnknownMemberIdError, NextStep.RESET, ClassicMemberState.UNJOINED, False),
        (errors.IllegalGenerationError, NextStep.RESET, ClassicMemberState.UNJOINED, True),
    ],
)
def test_syncs_that_are_refused(
    error: type[ProtocolError], step: NextStep, state: ClassicMemberState, keeps_id: bool
) -> None:
    one = joined()
    assert one.on_sync(SyncGroupResponse(error_code=error.code)) is step
    assert one.is_in(state)
    assert one.member_id == ("me" if keeps_id else "")
    assert one.rejoin is not None


def test_a_heartbeat_shows_a_rebalance() -> None:
    one = stable()
    assert one.rejoin is None
    assert one.on_refusal(one.identity, errors.RebalanceInProgressError.code) is NextStep.REJOIN
    assert one.rejoin == "the group is rebalancing"
    assert one.is_known, "what it has is not lost"


@pytest.mark.parametrize("error", [errors.UnknownMemberIdError, errors.IllegalGenerationError])
def test_an_unknown_member_has_lost_everything(error: type[ProtocolError]) -> None:
    one = stable()
    assert one.on_refusal(one.identity, error.code) is NextStep.RESET
    assert one.is_in(ClassicMemberState.UNJOINED)
    assert not one.is_known
    assert one.member_id == ("" if error is errors.UnknownMemberIdError else "me")


def test_an_answer_to_a_life_that_is_over_changes_nothing() -> None:
    one = stable()
    before = one.identity
    one.begin_join()
    one.on_join(JoinGroupResponse(generation_id=5, member_id="me", leader="other", protocol_name="range"))
    assert one.on_refusal(before, errors.IllegalGenerationError.code) is NextStep.DONE
    assert one.generation == 5


def test_a_member_whose_instance_id_joined_again_is_fenced() -> None:
    one = stable("static")
    with pytest.raises(errors.FencedInstanceIdError, match="'static'"):
        one.on_refusal(one.identity, errors.FencedInstanceIdError.code)
    assert one.is_in(ClassicMemberState.UNJOINED)


def test_only_dynamic_members_send_a_leave_request() -> None:
    one = stable()
    assert one.sends_leave
    assert one.leave_request(2, "why").member_id == "me"
    newer = one.leave_request(5, "w" * 300)
    assert [(each.member_id, len(each.reason or "")) for each in newer.members] == [("me", 255)]
    assert not stable("static").sends_leave
