"""A classic membership inside poll: callbacks before and after rebalances, and what goes over the wire for them."""

from __future__ import annotations

import logging
import time

import pytest

from braidlog.client.consumer.assignors.embedded_protocol import read_subscription, write_subscription
from braidlog.client.consumer.assignors.interface import Subscriber
from braidlog.client.errors import CommitFailedError, SettingError
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupRequest
from braidlog.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from support.membership_harness import (
    BEAT,
    COMMIT,
    JOIN,
    LEAVE,
    MembershipHarness,
    membership_harness,
    names,
    partitions,
)
from support.scripted_group import Coordinator

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


def told_of(request: JoinGroupRequest, place: int = 0) -> Subscriber:
    return read_subscription("me", None, request.protocols[place].metadata)


def refusing(error: type[ProtocolError]) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)


def test_a_member_joins_leads_and_sends_heartbeats() -> None:
    with membership_harness({"t": 3}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        assert here.listener.reported == [("assigned", partitions("t", 0, 1, 2))]
        assert names(here.subscription.assigned()) == ["t-0", "t-1", "t-2"]
        first, second = here.script.asked(JOIN, JoinGroupRequest)
        assert (first.member_id, second.member_id) == ("member-1", "member-1") or first.member_id == ""
        assert [each.name for each in second.protocols] == ["range", "cooperative-sticky"]
        here.eventually(lambda: here.script.count(BEAT) >= 3)
        beat = here.script.asked(BEAT, HeartbeatRequest)[-1]
        assert (beat.generation_id, beat.member_id) == (1, "member-1")
        metadata = here.membership.group_metadata()
        assert (metadata.group_id, metadata.generation_id, metadata.member_id) == ("readers", 1, "member-1")


def test_nothing_is_said_before_the_first_poll() -> None:
    with membership_harness({"t": 3}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        assert here.script.requests == []


def test_eager_members_give_everything_up_before_they_join() -> None:
    with membership_harness({"t": 3}) as here:
        group = Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.script.then(BEAT, refusing(errors.RebalanceInProgressError))
        group.others["other"] = write_subscription(["t"], None, [], -1, None)
        here.until(lambda: here.listener.words == ["assigned", "revoked", "assigned"])
        assert here.listener.reported[1] == ("revoked", partitions("t", 0, 1, 2))
        # The other comes first by name, so the one partition more is ours.
        assert here.listener.reported[2] == ("assigned", partitions("t", 0, 1))
        assert {name: names(share) for name, share in group.shares.items()} == {
            "member-1": ["t-0", "t-1"],
            "other": ["t-2"],
        }
        assert told_of(here.script.asked(JOIN, JoinGroupRequest)[-1]).owned == ()


def test_cooperative_members_give_up_only_what_moves() -> None:
    with membership_harness({"t": 3}, enable_auto_commit=True, auto_commit_interval_ms=60_000, **COOPERATIVE) as here:
        group = Coordinator(here.script)
        here.script.always(COMMIT, lambda request, version: OffsetCommitResponse())
        here.subscribe("t")
        here.settle()
        for partition in partitions("t", 0, 1, 2):
            here.position(partition, 7)
        group.give(partitions("t", 0, 1), partitions("t", 0, 1))
        joins = here.script.count(JOIN)
        here.script.then(BEAT, refusing(errors.RebalanceInProgressError))
        here.until(lambda: here.membership.is_settled and here.script.count(JOIN) == joins + 2)
        assert here.listener.reported == [
            ("assigned", partitions("t", 0, 1, 2)),
            ("revoked", partitions("t", 2)),
            ("assigned", []),
            ("assigned", []),
        ]
        before, after = [told_of(each) for each in here.script.asked(JOIN, JoinGroupRequest)[-2:]]
        assert (names(before.owned), before.generation) == (["t-0", "t-1", "t-2"], 1)
        assert (names(after.owned), after.generation) == (["t-0", "t-1"], 2)
        # Once before the join, once before giving up, in the generation that each was in.
        commits = here.script.asked(COMMIT, OffsetCommitRequest)
        assert [each.generation_id_or_member_epoch for each in commits] == [1, 2, 2]


@pytest.mark.parametrize("settings", [{}, COOPERATIVE])
def test_an_unknown_member_loses_its_partitions_and_joins_anew(settings: dict[str, str]) -> None:
    with membership_harness({"t": 2}, **settings) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.script.then(BEAT, refusing(errors.UnknownMemberIdError))
        here.until(lambda: here.listener.words == ["assigned", "lost", "assigned"])
        here.settle()
        assert here.membership.group_metadata().member_id == "member-2"
        assert told_of(here.script.asked(JOIN, JoinGroupRequest)[-1]).owned == ()


def test_what_a_listener_raises_comes_out_of_poll_when_all_is_in_place() -> None:
    with membership_harness({"t": 2}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.listener.trouble = KeyError("mine")
        with pytest.raises(KeyError, match="mine"):
            here.settle()
        assert here.membership.is_settled
        assert len(here.subscription.assigned()) == 2


def test_a_program_may_commit_while_partitions_are_taken() -> None:
    with membership_harness({"t": 1}) as here:
        Coordinator(here.script)
        here.script.always(COMMIT, lambda request, version: OffsetCommitResponse())
        here.subscribe("t")
        here.settle()
        here.position(partitions("t", 0)[0], 5)
        here.listener.on_revoked = lambda: here.commits.commit(None, here.deadline())
        here.script.then(BEAT, refusing(errors.RebalanceInProgressError))
        here.until(lambda: "revoked" in here.listener.words)
        [commit] = here.script.asked(COMMIT, OffsetCommitRequest)
        assert commit.generation_id_or_member_epoch == 1
        assert commit.topics[0].partitions[0].committed_offset == 5


def test_a_program_that_does_not_poll_leaves(caplog: pytest.LogCaptureFixture) -> None:
    with membership_harness({"t": 2}, max_poll_interval_ms=50) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        with caplog.at_level(logging.WARNING):
            here.eventually(lambda: here.script.count(LEAVE))
        assert "max.poll.interval.ms" in caplog.text
        [leave] = here.script.asked(LEAVE, LeaveGroupRequest)
        assert leave.members[0].member_id == "member-1"
        assert "max.poll.interval.ms" in (leave.members[0].reason or "")
        with pytest.raises(CommitFailedError, match=r"call poll\(\)"):
            here.membership.commit_identity()
        assert here.listener.words == ["assigned"], "listeners are called in the program's thread only"
        here.until(lambda: here.listener.words[:3] == ["assigned", "lost", "assigned"])


def test_a_dynamic_member_sends_a_leave_request_and_a_static_one_does_not() -> None:
    for settings, goodbyes in (({}, 1), ({"group_instance_id": "static"}, 0)):
        with membership_harness({"t": 2}, **settings) as here:
            Coordinator(here.script)
            here.subscribe("t")
            here.settle()
            here.membership.close(here.deadline())
            here.membership.close(here.deadline())
            assert here.listener.words == ["assigned", "revoked"]
            assert here.script.count(LEAVE) == goodbyes


def test_unsubscribing_leaves_and_a_new_subscription_joins() -> None:
    with membership_harness({"t": 2, "u": 1}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.membership.leave(here.deadline())
        here.subscription.unsubscribe()
        assert here.script.count(LEAVE) == 1
        here.subscribe("u")
        here.until(lambda: here.listener.reported[-1] == ("assigned", partitions("u", 0)))


def test_a_changed_subscription_joins_again() -> None:
    with membership_harness({"t": 2, "u": 1}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.subscribe("t", "u")
        here.until(lambda: here.listener.reported[-1] == ("assigned", [*partitions("t", 0, 1), *partitions("u", 0)]))
        assert here.script.count(LEAVE) == 0


def test_cooperative_members_give_up_what_they_no_longer_subscribe_to() -> None:
    with membership_harness({"t": 2, "u": 1}, **COOPERATIVE) as here:
        Coordinator(here.script)
        here.subscribe("t", "u")
        here.settle()
        here.subscribe("u")
        here.until(lambda: here.membership.is_settled and len(here.listener.reported) >= 3)
        assert here.listener.reported[1:] == [("revoked", partitions("t", 0, 1)), ("assigned", [])]
        assert names(here.subscription.assigned()) == ["u-0"]


def test_an_assignment_that_no_longer_fits_the_subscription_is_not_taken() -> None:
    with membership_harness({"t": 2, "u": 1}) as here:
        group = Coordinator(here.script)
        here.subscribe("u")
        group.give(partitions("t", 0))
        here.settle()
        assert here.listener.reported == [("assigned", partitions("u", 0))]
        assert group.generation == 2


def test_a_fenced_member_raises_with_every_poll() -> None:
    with membership_harness({"t": 2}, group_instance_id="static") as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.script.then(BEAT, refusing(errors.FencedInstanceIdError))
        with pytest.raises(errors.FencedInstanceIdError, match="taken this one's place"):
            here.until(lambda: False)
        assert here.listener.words == ["assigned", "lost"]
        with pytest.raises(errors.FencedInstanceIdError):
            here.poll()


def test_other_refusals_are_raised_once_and_then_tried_again() -> None:
    with membership_harness({"t": 2}) as here:
        Coordinator(here.script)
        here.script.then(JOIN, JoinGroupResponse(error_code=errors.GroupAuthorizationFailedError.code))
        here.subscribe("t")
        with pytest.raises(errors.GroupAuthorizationFailedError):
            here.settle()
        here.settle()


def test_a_member_in_the_middle_of_joining_can_be_closed() -> None:
    with membership_harness({"t": 2}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.script.then(JOIN, None)
        here.membership.enforce_rebalance("a test wants it")
        here.until(lambda: here.script.parked)
        assert here.script.asked(JOIN, JoinGroupRequest)[-1].reason == "a test wants it"
        with pytest.raises(errors.RebalanceInProgressError, match="commit again"):
            here.membership.commit_identity()
        began = time.monotonic()
        here.membership.close(here.deadline())
        assert time.monotonic() - began < 30
        api, _, request, connection = here.script.requests[-1]
        assert (api, connection) == (LEAVE, ""), "not behind the join"
        assert request.members[0].member_id == "member-1"


def test_a_pattern_waits_for_metadata_and_follows_it() -> None:
    import re

    with membership_harness({}) as here:
        Coordinator(here.script)
        here.metadata.version = 0
        here.subscription.subscribe_pattern(re.compile("t.*"), [], here.listener)
        here.poll()
        assert here.script.count(JOIN) == 0

        def learn(*topics: str) -> None:
            here.metadata.version += 1
            here.subscription.match(topics)
            here.metadata.become(dict.fromkeys(topics, 1))

        here.on_engine(lambda: learn("t1", "other"))
        here.settle()
        assert here.listener.reported == [("assigned", partitions("t1", 0))]
        here.on_engine(lambda: learn("t1", "t2"))
        here.until(lambda: here.listener.reported[-1] == ("assigned", [*partitions("t1", 0), *partitions("t2", 0)]))


def test_heartbeats_must_be_quicker_than_the_session() -> None:
    with pytest.raises(SettingError, match=r"heartbeat\.interval\.ms"):
        MembershipHarness({}, heartbeat_interval_ms=5_000, session_timeout_ms=5_000)
