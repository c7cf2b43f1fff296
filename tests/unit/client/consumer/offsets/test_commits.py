"""Offsets in the group: what is written when, in whose name, what is tried again, and what the program hears."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from braidlog.client.consumer.interceptors import ConsumerInterceptors
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.errors import CommitFailedError, NoConnection, RequestTimeout
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from braidlog.wire.generated.heartbeat import HeartbeatResponse
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
)
from support.membership_harness import (
    BEAT,
    COMMIT,
    FIND,
    JOIN,
    LEAVE,
    NEWER_BEAT,
    membership_harness,
    topic_id,
)
from support.offset_commits import ONE, ZERO, answer, as_member, by_itself, written
from support.scripted_group import Coordinator

Told = tuple[dict[TopicPartition, OffsetAndMetadata], Exception | None]


def test_what_was_returned_is_committed() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.commits.commit(None, here.deadline())
        [request] = here.script.asked(COMMIT, OffsetCommitRequest)
        assert written(request) == {ZERO: (5, "", -1)}
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")


def test_nothing_to_commit_is_no_request() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.subscription.unsubscribe()
        here.commits.commit(None, here.deadline())
        here.commits.commit({}, here.deadline())
        assert here.script.count(COMMIT) == 0


@pytest.mark.parametrize(
    "passing",
    [
        errors.CoordinatorLoadInProgressError,
        errors.NotCoordinatorError,
        errors.CoordinatorNotAvailableError,
        errors.RequestTimedOutError,
        errors.UnknownTopicOrPartitionError,
        NoConnection("cut"),
    ],
)
def test_a_sync_commit_tries_again_what_may_pass(passing: Any) -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.script.then(COMMIT, passing if isinstance(passing, Exception) else answer(passing))
        here.commits.commit(None, here.deadline())
        assert here.script.count(COMMIT) == 2
        moved = passing not in (errors.CoordinatorLoadInProgressError, errors.UnknownTopicOrPartitionError)
        assert here.script.count(FIND) == 1 + moved


def test_a_sync_commit_ends_with_its_deadline() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.script.always(COMMIT, answer(errors.CoordinatorLoadInProgressError))
        with pytest.raises(RequestTimeout, match="the commit"):
            here.commits.commit(None, time.monotonic() + 0.05)


@pytest.mark.parametrize(
    "refusal",
    [
        errors.OffsetMetadataTooLargeError,
        errors.TopicAuthorizationFailedError,
        errors.GroupAuthorizationFailedError,
    ],
)
def test_a_commit_that_cannot_pass_is_raised(refusal: type[ProtocolError]) -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.script.always(COMMIT, answer(refusal))
        with pytest.raises(refusal, match="t-0"):
            here.commits.commit(None, here.deadline())
        assert here.script.count(COMMIT) == 1


@pytest.mark.parametrize("refusal", [errors.UnknownMemberIdError, errors.IllegalGenerationError])
def test_a_commit_of_an_unknown_member_raises_with_advice(refusal: type[ProtocolError]) -> None:
    with membership_harness({"t": 2}, heartbeat_interval_ms=4_000) as here:
        as_member(here)
        here.script.then(COMMIT, answer(refusal))
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            here.commits.commit(None, here.deadline())
        here.until(lambda: here.listener.words == ["assigned", "lost", "assigned"])


def test_a_commit_during_a_rebalance_raises_with_advice() -> None:
    with membership_harness({"t": 2}, heartbeat_interval_ms=4_000) as here:
        as_member(here)
        here.script.then(COMMIT, answer(errors.RebalanceInProgressError))
        with pytest.raises(errors.RebalanceInProgressError, match="commit again what is still assigned"):
            here.commits.commit(None, here.deadline())
        here.until(lambda: here.listener.words == ["assigned", "revoked", "assigned"])


def test_a_fenced_static_member_cannot_commit() -> None:
    with membership_harness({"t": 2}, group_instance_id="static", heartbeat_interval_ms=4_000) as here:
        as_member(here)
        here.script.then(COMMIT, answer(errors.FencedInstanceIdError))
        with pytest.raises(errors.FencedInstanceIdError):
            here.commits.commit(None, here.deadline())
        with pytest.raises(errors.FencedInstanceIdError):
            here.poll()


def test_a_commit_that_is_tried_again_leaves_out_what_a_later_one_said() -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True, auto_commit_interval_ms=60_000) as here:
        by_itself(here)
        here.position(ONE, 1)
        here.script.then(COMMIT, None)
        saving = here.commits.begin_auto_commit()
        assert saving is not None
        here.eventually(lambda: here.script.parked)
        here.commits.commit({ZERO: OffsetAndMetadata(9)}, here.deadline())
        here.on_engine(lambda: here.script.parked[0].set_exception(NoConnection("cut")))
        here.eventually(saving.done)
        assert [written(each) for each in here.script.asked(COMMIT, OffsetCommitRequest)] == [
            {ZERO: (5, "", -1), ONE: (1, "", -1)},
            {ZERO: (9, "", -1)},
            {ONE: (1, "", -1)},
        ]


# --- asynchronously


def test_callbacks_run_in_order_in_the_programs_thread() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        reported: list[int] = []

        def note(number: int) -> Callable[..., None]:
            return lambda offsets, problem: reported.append(number if problem is None else -number)

        here.script.then(COMMIT, None, answer(errors.RequestTimedOutError), answer())
        for number in (1, 2, 3):
            here.commits.commit_async({ZERO: OffsetAndMetadata(number)}, note(number))
        here.eventually(lambda: here.script.count(COMMIT) == 3)
        here.commits.tick(0.0)
        assert reported == [], "the first is not answered yet"
        here.on_engine(lambda: here.script.parked[0].set_result(answer()(OffsetCommitRequest(), 8)))
        here.eventually(lambda: here.commits.tick(0.0) or reported)
        assert reported == [1, -2, 3]
        offsets = [written(each)[ZERO][0] for each in here.script.asked(COMMIT, OffsetCommitRequest)]
        assert offsets == [1, 2, 3]


def test_an_async_commit_waits_for_the_coordinator() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        reported: list[Told] = []
        here.script.then(FIND, None)
        here.commits.commit_async(None, lambda *each: reported.append(each))
        here.eventually(lambda: here.script.parked)
        assert here.script.count(COMMIT) == 0
        here.on_engine(lambda: here.script.parked[0].set_result(here.script._found(None, 4)))
        here.eventually(lambda: here.commits.tick(0.0) or reported)
        assert reported == [({ZERO: OffsetAndMetadata(5)}, None)]


def test_a_sync_commit_runs_the_callbacks_of_those_before_it() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        reported: list[Told] = []
        here.commits.commit_async(None, lambda *each: reported.append(each))
        here.commits.commit(None, here.deadline())
        assert len(reported) == 1


def test_closing_waits_for_what_is_under_way_but_not_for_ever() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        reported: list[Told] = []
        here.script.then(COMMIT, answer(), None)
        for _ in range(2):
            here.commits.commit_async(None, lambda *each: reported.append(each))
        here.commits.close(time.monotonic() + 0.2)
        assert reported[0][1] is None
        assert isinstance(reported[1][1], RequestTimeout)


def test_interceptors_are_called_with_what_was_committed() -> None:
    heard: list[Any] = []

    class Interceptor:
        def on_commit(self, offsets: object) -> None:
            heard.append(offsets)
            raise ValueError("is only logged")

    with membership_harness({"t": 2}, interceptors=ConsumerInterceptors([Interceptor()])) as here:
        by_itself(here)
        here.commits.commit(None, here.deadline())
        here.script.then(COMMIT, answer(errors.OffsetMetadataTooLargeError))
        with pytest.raises(errors.OffsetMetadataTooLargeError):
            here.commits.commit(None, here.deadline())
        assert heard == [{ZERO: OffsetAndMetadata(5)}]


# --- by itself


def test_auto_commit_writes_what_earlier_polls_returned() -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True, auto_commit_interval_ms=1_000) as here:
        by_itself(here)
        now = time.monotonic()
        here.commits.tick(now)
        assert here.script.count(COMMIT) == 0, "not due"
        here.commits.tick(now + 1.1)
        here.eventually(lambda: here.script.count(COMMIT) == 1)
        here.position(ZERO, 8)
        here.eventually(lambda: here.commits.tick(now + 1.2) or here.commits.next_due() is not None)
        assert here.script.count(COMMIT) == 1
        here.commits.tick(now + 2.2)
        here.eventually(lambda: here.script.count(COMMIT) == 2)
        offsets = [written(each)[ZERO][0] for each in here.script.asked(COMMIT, OffsetCommitRequest)]
        assert offsets == [5, 8]


def test_who_assigns_other_partitions_does_not_wait_for_the_commit() -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True) as here:
        by_itself(here)
        here.script.then(COMMIT, None)
        here.commits.begin_auto_commit_of_all()
        here.subscription.assign([ONE])
        here.eventually(lambda: here.script.parked)
        [request] = here.script.asked(COMMIT, OffsetCommitRequest)
        assert written(request) == {ZERO: (5, "", -1)}
        here.on_engine(lambda: here.script.parked[0].set_result(answer()(request, 8)))
        here.commits.close(here.deadline())
        assert here.commits.metrics()["commit-total"] == 1


def test_auto_commit_comes_back_soon_after_what_may_pass() -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True, auto_commit_interval_ms=60_000) as here:
        by_itself(here)
        here.script.then(COMMIT, answer(errors.CoordinatorLoadInProgressError))
        here.commits.tick(time.monotonic() + 61)
        here.eventually(lambda: here.commits.tick(time.monotonic()) or here.script.count(COMMIT) == 2)


def test_auto_commit_comes_before_partitions_are_given_up() -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True, heartbeat_interval_ms=4_000) as here:
        as_member(here)
        here.script.then(COMMIT, None)
        here.membership.enforce_rebalance("a test wants it")
        here.until(lambda: here.script.parked)
        assert here.listener.words == ["assigned"], "not before the commit is acknowledged"
        assert here.subscription.state(ZERO).is_pending_revocation, "and nothing more is returned meanwhile"
        [request] = here.script.asked(COMMIT, OffsetCommitRequest)
        here.on_engine(lambda: here.script.parked[0].set_result(answer()(request, 8)))
        here.until(lambda: here.listener.words == ["assigned", "revoked", "assigned"])


def test_auto_commit_comes_before_leaving() -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True) as here:
        as_member(here)
        here.membership.close(here.deadline())
        [request] = here.script.asked(COMMIT, OffsetCommitRequest)
        assert written(request) == {ZERO: (5, "", -1)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_that_takes_all_the_time_leaves_some_for_the_leave_request(protocol: str) -> None:
    with membership_harness({"t": 1}, enable_auto_commit=True, group_protocol=protocol) as here:
        Coordinator(here.script)
        here.script.always(
            NEWER_BEAT,
            lambda request, version: ConsumerGroupHeartbeatResponse(
                member_id=request.member_id,
                member_epoch=max(request.member_epoch, 1),
                heartbeat_interval_ms=1_000,
                assignment=Assignment(
                    topic_partitions=[ResponseTopicPartitions(topic_id=topic_id("t"), partitions=[0])]
                ),
            ),
        )
        here.subscribe("t")
        here.until(lambda: here.membership.is_settled and ZERO in here.subscription.assigned())
        here.position(ZERO, 5)
        here.script.then(COMMIT, None)
        here.script.always(COMMIT, answer())
        here.membership.leave(time.monotonic() + 0.05)
        assert here.script.count(COMMIT) == 1
        if protocol == "classic":
            assert here.script.count(LEAVE) == 1
        else:
            assert here.script.asked(NEWER_BEAT, ConsumerGroupHeartbeatRequest)[-1].member_epoch == -1


@pytest.mark.parametrize("was_member", [False, True])
def test_auto_commit_comes_before_closing_without_a_group(was_member: bool) -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True) as here:
        if was_member:
            as_member(here)
            here.membership.leave(here.deadline())
            here.subscription.unsubscribe()
        reported = len(here.listener.reported)
        by_itself(here)
        here.position(ZERO, 7)
        here.membership.close(here.deadline())
        here.commits.close(here.deadline())
        request = here.script.asked(COMMIT, OffsetCommitRequest)[-1]
        assert written(request) == {ZERO: (7, "", -1)}
        assert request.member_id == ""
        assert len(here.listener.reported) == reported


def test_a_loss_while_auto_commit_is_waited_for_does_not_count_for_the_next_time() -> None:
    with membership_harness({"t": 2}, enable_auto_commit=True) as here:
        as_member(here)
        here.script.then(COMMIT, None)
        here.membership.enforce_rebalance("a test wants it")
        here.until(lambda: here.script.parked)
        here.script.then(BEAT, HeartbeatResponse(error_code=errors.UnknownMemberIdError.code))
        here.until(lambda: here.listener.words == ["assigned", "lost", "assigned"])
        here.settle()
        here.position(ZERO, 9)
        here.membership.enforce_rebalance("a test wants it again")
        here.until(lambda: here.listener.words[3:4] == ["revoked"])
        assert written(here.script.asked(COMMIT, OffsetCommitRequest)[-1]) == {ZERO: (9, "", -1)}


def test_without_auto_commit_nothing_is_written_unasked() -> None:
    with membership_harness({"t": 2}) as here:
        as_member(here)
        here.commits.tick(time.monotonic() + 100)
        here.membership.close(here.deadline())
        assert here.script.count(COMMIT) == 0


# --- read


def test_a_consumer_by_itself_never_joins() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.commits.commit(None, here.deadline())
        here.membership.close(here.deadline())
        assert here.script.count(JOIN) == here.script.count(BEAT) == 0
