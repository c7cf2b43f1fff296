from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from braidlog.client.consumer.assignors.embedded_protocol import read_subscription, write_subscription
from braidlog.client.consumer.assignors.interface import Assignment, Assignor, Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.range import RangeAssignor
from braidlog.client.errors import NoConnection
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.find_coordinator import FindCoordinatorResponse
from braidlog.wire.generated.heartbeat import HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupRequest
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from support.membership_harness import (
    BEAT,
    FIND,
    JOIN,
    LEAVE,
    SYNC,
    membership_harness,
    names,
    partitions,
)
from support.scripted_group import Coordinator


def told_of(request: JoinGroupRequest, place: int = 0) -> Subscriber:
    return read_subscription("me", None, request.protocols[place].metadata)


def refusing(error: type[ProtocolError]) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)


def test_a_leader_notices_that_topics_grow() -> None:
    with membership_harness({"t": 2}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.on_engine(lambda: here.metadata.become({"t": 2}))
        here.poll()
        assert here.membership.is_settled
        here.on_engine(lambda: here.metadata.become({"t": 3}))
        here.until(lambda: here.listener.reported[-1] == ("assigned", partitions("t", 0, 1, 2)))


def test_a_leader_learns_of_topics_that_only_others_read() -> None:
    with membership_harness({"t": 1}) as here:
        group = Coordinator(here.script)
        group.others["other"] = write_subscription(["foreign"], None, [], -1, None)
        here.metadata.on_update = lambda: here.metadata.become({"t": 1, "foreign": 2})
        here.subscribe("t")
        here.settle()
        assert names(group.shares["other"]) == ["foreign-0", "foreign-1"]
        assert here.subscription.group_topics == {"t", "foreign"}


def test_a_leader_that_skips_the_assignment_still_watches_topics() -> None:
    with membership_harness({"t": 2}, group_instance_id="static") as here:
        group = Coordinator(here.script)
        group.skips = True
        group.give(partitions("t", 0))
        here.subscribe("t")
        here.settle()
        assert here.script.asked(SYNC, SyncGroupRequest)[0].assignments == []
        group.skips = False
        here.on_engine(lambda: here.metadata.become({"t": 4}))
        here.until(lambda: here.listener.reported[-1] == ("assigned", partitions("t", 0, 1, 2, 3)))


class Own(Assignor):
    """A program's own assignor notes the thread it runs in."""

    name = "own"

    def __init__(self, trouble: Exception | None = None) -> None:
        self.threads: list[threading.Thread] = []
        self.shares: list[Assignment] = []
        self.trouble = trouble

    def assign(self, members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, Assignment]:
        self.threads.append(threading.current_thread())
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        shares = RangeAssignor().assign(members, topics)
        for share in shares.values():
            share.user_data = b"hint"
        return shares

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return ",".join(topics).encode()

    def on_assignment(self, share: Assignment, generation: int) -> None:
        self.shares.append(share)


def test_a_programs_own_assignor_runs_in_its_own_thread() -> None:
    own = Own()
    with membership_harness({"t": 2}, partition_assignment_strategy=[own]) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        assert own.threads == [threading.current_thread()]
        assert own.shares == [Assignment(partitions("t", 0, 1), b"hint")]
        assert told_of(here.script.asked(JOIN, JoinGroupRequest)[-1]).user_data == b"t"


def test_what_an_own_assignor_raises_comes_out_of_poll() -> None:
    own = Own(ZeroDivisionError("mine"))
    with membership_harness({"t": 2}, partition_assignment_strategy=[own]) as here:
        Coordinator(here.script)
        here.subscribe("t")
        with pytest.raises(ZeroDivisionError, match="mine"):
            here.settle()
        here.settle()
        assert here.listener.words == ["assigned"]


@pytest.mark.parametrize("lost", [NoConnection("cut"), errors.NotCoordinatorError])
def test_a_coordinator_that_goes_away_is_looked_for(lost: NoConnection | type[ProtocolError]) -> None:
    with membership_harness({"t": 2}) as here:
        Coordinator(here.script)
        for api, kind in ((JOIN, JoinGroupResponse), (SYNC, SyncGroupResponse), (BEAT, HeartbeatResponse)):
            here.script.then(api, lost if isinstance(lost, NoConnection) else kind(error_code=lost.code))
        here.subscribe("t")
        here.settle()
        here.eventually(lambda: here.script.count(BEAT) >= 3)
        assert here.script.count(FIND) == 4
        assert here.listener.words == ["assigned"], "nothing was lost by it"


def test_a_lookup_that_is_no_longer_authorized_is_raised() -> None:
    with membership_harness({"t": 2}) as here:
        Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        here.script.then(FIND, FindCoordinatorResponse(error_code=errors.GroupAuthorizationFailedError.code))
        here.script.then(BEAT, refusing(errors.NotCoordinatorError))
        with pytest.raises(errors.GroupAuthorizationFailedError):
            here.until(lambda: False)
        here.until(lambda: here.listener.words[:3] == ["assigned", "lost", "assigned"])
        before = here.script.count(BEAT)
        here.eventually(lambda: here.script.count(BEAT) > before)


def test_older_brokers_are_spoken_to_in_their_version() -> None:
    with membership_harness({"t": 2}) as here:
        Coordinator(here.script)
        here.script.versions = {FIND: 0, JOIN: 0, SYNC: 0, BEAT: 0, LEAVE: 0}
        here.subscribe("t")
        here.settle()
        here.membership.close(here.deadline())
        assert here.script.asked(LEAVE, LeaveGroupRequest)[0].member_id == "member-1"


def test_a_static_member_needs_a_broker_that_knows_them() -> None:
    with membership_harness({"t": 2}, group_instance_id="static") as here:
        Coordinator(here.script)
        here.script.versions = {JOIN: 4}
        here.subscribe("t")
        with pytest.raises(Exception, match="group_instance_id"):
            here.settle()


def test_an_answer_to_a_join_that_was_given_up_does_not_count_for_the_next() -> None:
    with membership_harness({"t": 2}) as here:
        group = Coordinator(here.script)
        here.subscribe("t")
        here.settle()
        late = group._join(here.script.asked(JOIN, JoinGroupRequest)[-1], 9)
        here.script.then(JOIN, None)
        here.membership.enforce_rebalance("a test wants it")
        here.until(lambda: here.script.parked)
        here.membership.leave(here.deadline())
        here.subscription.unsubscribe()
        here.subscribe("t")
        here.script.then(JOIN, None)
        here.until(lambda: len(here.script.parked) == 2)
        here.on_engine(lambda: here.script.parked[0].done() or here.script.parked[0].set_result(late))
        here.poll()
        assert here.membership.group_metadata().generation_id == -1
