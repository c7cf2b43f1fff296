"""The newer protocol's machine: what is said when, and what each answer makes of a member."""

from __future__ import annotations

import pytest

from braidlog.client.consumer.group.consumer_protocol_member import (
    ConsumerMemberState,
    ConsumerProtocolMember,
    HeartbeatResult,
    Owned,
    TopicSubscription,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.ids import id_text, random_id
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

T = b"t" * 16
U = b"u" * 16


def member(instance: str | None = None) -> ConsumerProtocolMember:
    return ConsumerProtocolMember("g", instance, "rack", 9_000, "uniform", new_member_id=lambda: id_text(random_id()))


def answer(epoch: int = 1, target: Owned | None = None, *, member_id: str = "me") -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if target is not None:
        reported = [ResponseTopicPartitions(topic_id=each, partitions=sorted(target[each])) for each in target]
        assignment = Assignment(topic_partitions=reported)
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=100, assignment=assignment
    )


def refusal(error: type[ProtocolError]) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message="because")


def stable(instance: str | None = None, target: Owned | None = None) -> ConsumerProtocolMember:
    """Owns the target, and the coordinator knows."""
    one = member(instance)
    one.join(TopicSubscription(("t",)))
    one.request(1)
    wanted = {T: frozenset({0})} if target is None else target
    one.on_answer(answer(1, wanted))
    assert one.target is not None
    one.took(one.target, wanted, whole=True)
    one.request(1)
    one.on_answer(answer(1))
    assert one.is_in(ConsumerMemberState.STABLE)
    return one


def test_the_first_heartbeat_has_everything() -> None:
    one = member("static")
    one.join(TopicSubscription(("a", "b")))
    request = one.request(1)
    assert (request.member_epoch, request.instance_id, request.rack_id) == (0, "static", "rack")
    assert (request.rebalance_timeout_ms, request.server_assignor) == (9_000, "uniform")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["a", "b"], None)
    assert request.topic_partitions == []
    assert len(request.member_id) == 22, "chosen by the member from version 1 on"


def test_the_first_version_leaves_the_id_to_the_coordinator() -> None:
    one = member()
    one.join(TopicSubscription(("a",)))
    assert one.request(0).member_id == ""
    one.on_answer(answer(member_id="theirs"))
    assert one.request(0).member_id == "theirs"


def test_later_heartbeats_have_what_changed() -> None:
    one = stable()
    request = one.request(1)
    assert (request.member_epoch, request.member_id) == (1, "me")
    assert (request.subscribed_topic_names, request.topic_partitions, request.rebalance_timeout_ms) == (None, None, -1)
    one.subscribe(TopicSubscription(("t", "u")))
    assert one.has_changes
    assert one.request(1).subscribed_topic_names == ["t", "u"]
    assert not one.has_changes


def test_what_was_not_answered_is_sent_again() -> None:
    one = stable()
    one.no_answer()
    request = one.request(1)
    assert request.subscribed_topic_names == ["t"]
    assert request.topic_partitions is not None
    assert [(each.topic_id, each.partitions) for each in request.topic_partitions] == [(T, [0])]


def test_a_target_is_reconciled_then_acknowledged() -> None:
    one = stable()
    wanted = {T: frozenset({0, 1}), U: frozenset({2})}
    assert one.on_answer(answer(2, wanted)) is HeartbeatResult.CHANGED
    assert one.is_in(ConsumerMemberState.RECONCILING)
    assert not one.has_changes, "nothing is sent before it is so"
    assert one.target == wanted
    one.took(one.target, wanted, whole=True)
    assert one.is_in(ConsumerMemberState.ACKNOWLEDGING)
    request = one.request(1)
    assert request.topic_partitions is not None
    assert [(each.topic_id, each.partitions) for each in request.topic_partitions] == [(T, [0, 1]), (U, [2])]
    assert one.on_answer(answer(2)) is HeartbeatResult.DONE
    assert one.is_in(ConsumerMemberState.STABLE)


def test_an_answer_to_a_question_from_before_does_not_end_the_acknowledging() -> None:
    one = stable()
    one.on_answer(answer(2, {T: frozenset({1})}))
    one.request(1)
    assert one.target is not None
    one.took(one.target, one.target, whole=True)
    one.on_answer(answer(2))
    assert one.is_in(ConsumerMemberState.ACKNOWLEDGING)
    assert one.has_changes


def test_a_target_that_changed_meanwhile_is_reconciled_as_well() -> None:
    one = stable()
    one.on_answer(answer(2, {T: frozenset({0, 1})}))
    before = one.target
    assert before is not None
    one.on_answer(answer(3, {T: frozenset({1})}))
    one.took(before, before, whole=True)
    assert one.is_in(ConsumerMemberState.RECONCILING)
    assert one.has_changes, "but what it has now is sent"


def test_a_target_whose_topics_are_not_all_known_stays_open() -> None:
    one = stable()
    one.on_answer(answer(2, {T: frozenset({0}), U: frozenset({0})}))
    assert one.target is not None
    one.took(one.target, {T: frozenset({0})}, whole=False)
    assert one.is_in(ConsumerMemberState.RECONCILING)


def test_what_it_has_already_needs_no_reconciling_but_the_first_target_does() -> None:
    one = stable()
    assert one.on_answer(answer(2, {T: frozenset({0})})) is HeartbeatResult.DONE
    fresh = member()
    fresh.join(TopicSubscription(("t",)))
    fresh.request(1)
    assert fresh.on_answer(answer(1, {})) is HeartbeatResult.CHANGED


@pytest.mark.parametrize("error", [errors.FencedMemberEpochError, errors.UnknownMemberIdError])
def test_an_unknown_member_joins_again_under_its_id(error: type[ProtocolError]) -> None:
    one = stable()
    assert one.on_answer(refusal(error)) is HeartbeatResult.CHANGED
    assert one.is_in(ConsumerMemberState.FENCED)
    assert not one.identity.is_member
    one.join(TopicSubscription(("t",)))
    request = one.request(1)
    assert (request.member_epoch, request.member_id, request.topic_partitions) == (0, "me", [])


@pytest.mark.parametrize(
    "error",
    [errors.CoordinatorLoadInProgressError, errors.NotCoordinatorError, errors.CoordinatorNotAvailableError],
)
def test_what_passes_is_waited_for(error: type[ProtocolError]) -> None:
    one = stable()
    assert one.on_answer(refusal(error)) is HeartbeatResult.RETRY_LATER
    assert one.request(1).subscribed_topic_names == ["t"], "the next coordinator may know nothing"
    assert one.identity.is_member


@pytest.mark.parametrize(
    "error",
    [
        errors.GroupAuthorizationFailedError,
        errors.UnsupportedAssignorError,
        errors.UnreleasedInstanceIdError,
        errors.GroupMaxSizeReachedError,
        errors.InvalidRequestError,
        errors.UnsupportedVersionError,
        errors.FencedInstanceIdError,
    ],
)
def test_what_does_not_pass_is_raised(error: type[ProtocolError]) -> None:
    one = stable("static")
    with pytest.raises(error, match="group g"):
        one.on_answer(refusal(error))
    assert not one.is_active


def test_patterns_are_left_to_brokers_that_match_them() -> None:
    one = member()
    one.join(TopicSubscription(("t1",), "t.*"))
    request = one.request(1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")
    older = member()
    older.join(TopicSubscription(("t1",), "t.*"))
    request = older.request(0)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t1"], None)


def test_a_pattern_that_the_broker_does_not_understand_is_matched_here() -> None:
    one = member()
    one.join(TopicSubscription(("t1",), "t(?=1)"))
    one.request(1)
    assert one.on_answer(refusal(errors.InvalidRegularExpressionError)) is HeartbeatResult.RETRY
    request = one.request(1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t1"], None)


def test_names_after_a_pattern_take_the_pattern_back() -> None:
    one = member()
    one.join(TopicSubscription(("t1",), "t.*"))
    one.request(1)
    one.on_answer(answer())
    one.subscribe(TopicSubscription(("u",)))
    request = one.request(1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["u"], "")


def test_static_members_say_that_they_will_be_back() -> None:
    assert stable().leave_request().member_epoch == -1
    paused = stable("static").leave_request()
    assert (paused.member_epoch, paused.instance_id) == (-2, "static")


def test_after_leaving_for_not_polling_answers_do_not_count() -> None:
    one = stable()
    one.stop_for_not_polling()
    assert one.on_answer(answer(5, {T: frozenset({3})})) is HeartbeatResult.DONE
    assert one.is_in(ConsumerMemberState.STALE)
    assert not one.has_changes
