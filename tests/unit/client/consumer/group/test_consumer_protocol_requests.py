from __future__ import annotations

import re
from typing import Any

import pytest

from braidlog.client.errors import NoConnection
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from support.consumer_protocol_coordinator import Coordinator
from support.membership_harness import (
    FIND,
    NEWER_BEAT,
    membership_harness,
    names,
    partitions,
    topic_id,
)

NEWER = {"group_protocol": "consumer"}


def refusing(error: type[ProtocolError]) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code)


def test_a_changed_subscription_is_sent_at_once() -> None:
    with membership_harness({"t": 2, "u": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.until(lambda: group.is_content)
        here.subscribe("u")
        here.until(lambda: any(each.subscribed_topic_names == ["u"] for each in group.asked()))
        group.want({"u": [0]})
        here.until(lambda: group.is_content)
        assert names(here.subscription.assigned()) == ["u-0"]


def test_a_pattern_goes_to_the_broker() -> None:
    with membership_harness({"t1": 1, "t2": 1}, **NEWER) as here:
        group = Coordinator(here, {"t1": [0], "t2": [0]})
        here.subscription.subscribe_pattern(re.compile("t.*"), ["t1"], here.listener)
        here.until(lambda: group.is_content)
        assert group.asked()[0].subscribed_topic_regex == "t.*"
        assert names(here.subscription.assigned()) == ["t1-0", "t2-0"]


def test_a_refusal_is_raised_once_and_then_tried_again() -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.script.then(NEWER_BEAT, refusing(errors.UnsupportedAssignorError))
        here.subscribe("t")
        with pytest.raises(errors.UnsupportedAssignorError, match=r"group\.remote\.assignor"):
            here.settle()
        here.until(lambda: group.is_content)


@pytest.mark.parametrize("lost", [NoConnection("cut"), refusing(errors.NotCoordinatorError)])
def test_a_new_coordinator_is_found_and_sent_everything(lost: Any) -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.until(lambda: group.is_content)
        before = len(group.asked())
        here.script.then(NEWER_BEAT, lost)
        here.eventually(lambda: len(group.asked()) > before + 3)
        assert here.script.count(FIND) == 2
        again = [each for each in group.asked()[before:] if each.subscribed_topic_names == ["t"]]
        assert len(again) == 1
        assert again[0].topic_partitions is not None
        assert again[0].member_epoch == 1
        assert here.listener.words == ["assigned"]


def test_one_that_leaves_while_it_joins_sends_a_leave_request() -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.script.then(NEWER_BEAT, None)
        here.subscribe("t")
        here.until(lambda: here.script.parked)
        here.membership.close(here.deadline())
        assert [each.member_epoch for each in group.asked()] == [0, -1]
        assert len({each.member_id for each in group.asked()}) == 1


def test_an_answer_to_an_earlier_join_brings_no_partitions() -> None:
    with membership_harness({"t": 2}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.until(lambda: group.is_content)
        here.script.then(NEWER_BEAT, None)
        here.eventually(lambda: here.script.parked)
        here.membership.leave(here.deadline())
        here.subscription.unsubscribe()
        here.subscribe("t")
        here.poll()
        group.want({"t": [1]})
        old = ConsumerGroupHeartbeatResponse(
            member_epoch=1,
            heartbeat_interval_ms=5,
            assignment=Assignment(topic_partitions=[ResponseTopicPartitions(topic_id=topic_id("t"), partitions=[0])]),
        )
        here.on_engine(lambda: here.script.parked[0].set_result(old))
        here.until(lambda: group.is_content and here.membership.is_settled)
        assert here.listener.reported[-1] == ("assigned", partitions("t", 1))
        assert here.listener.words == ["assigned", "revoked", "assigned"]
        assert [each.member_epoch for each in group.asked()].count(0) == 2, "it has to come as one who joins"
