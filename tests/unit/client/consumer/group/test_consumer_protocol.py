"""A membership of the newer protocol inside poll: giving up, taking, being forgotten, leaving."""

from __future__ import annotations

import logging

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.errors import CommitFailedError
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from braidlog.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from support.consumer_protocol_coordinator import Coordinator
from support.membership_harness import (
    COMMIT,
    FETCH,
    NEWER_BEAT,
    membership_harness,
    partitions,
)

NEWER = {"group_protocol": "consumer"}


def refusing(error: type[ProtocolError]) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code)


def test_a_member_joins_takes_and_acknowledges() -> None:
    with membership_harness({"t": 3}, **NEWER) as here:
        group = Coordinator(here, {"t": [0, 2]})
        here.subscribe("t")
        here.until(lambda: here.membership.is_settled and group.is_content)
        assert here.listener.reported == [("assigned", partitions("t", 0, 2))]
        first = group.asked()[0]
        assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["t"], [])
        metadata = here.membership.group_metadata()
        assert (metadata.generation_id, metadata.member_id) == (1, first.member_id)
        here.eventually(lambda: len(group.asked()) > 5)


def test_what_moves_is_given_up_then_the_new_is_taken() -> None:
    with membership_harness({"t": 3}, enable_auto_commit=True, **NEWER) as here:
        group = Coordinator(here, {"t": [0, 1]})
        here.script.always(COMMIT, lambda request, version: OffsetCommitResponse())
        here.subscribe("t")
        here.until(lambda: group.is_content)
        here.position(partitions("t", 1)[0], 4)
        group.want({"t": [0, 2]})
        here.until(lambda: group.is_content and here.membership.is_settled)
        assert here.listener.reported[1:] == [("revoked", partitions("t", 1)), ("assigned", partitions("t", 2))]
        [commit] = here.script.asked(COMMIT, OffsetCommitRequest)
        assert commit.topics[0].partitions[0].committed_offset == 4
        assert commit.generation_id_or_member_epoch == 2


def test_an_empty_assignment_calls_the_listener_once() -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        Coordinator(here, {})
        here.subscribe("t")
        here.settle()
        here.until(lambda: here.script.count(NEWER_BEAT) > 4)
        assert here.listener.reported == [("assigned", [])]


def test_topics_that_are_not_known_by_name_yet_are_taken_later() -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0], "u": [0]})
        here.subscribe("t", "u")
        here.until(lambda: here.listener.reported and here.metadata.updates)
        assert here.listener.reported == [("assigned", partitions("t", 0))]
        assert not here.membership.is_settled
        here.on_engine(lambda: here.metadata.become({"t": 1, "u": 1}))
        here.until(lambda: here.membership.is_settled and group.is_content)
        assert here.listener.reported[1:] == [("assigned", partitions("u", 0))]


@pytest.mark.parametrize("error", [errors.FencedMemberEpochError, errors.UnknownMemberIdError])
def test_an_unknown_member_loses_everything_and_joins_anew(error: type[ProtocolError]) -> None:
    with membership_harness({"t": 2}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.until(lambda: group.is_content)
        here.script.then(NEWER_BEAT, refusing(error))
        here.until(lambda: here.listener.words == ["assigned", "lost", "assigned"])
        here.settle()
        assert [each.member_epoch for each in group.asked()].count(0) == 2


def test_a_program_that_does_not_poll_leaves(caplog: pytest.LogCaptureFixture) -> None:
    with membership_harness({"t": 1}, max_poll_interval_ms=50, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.until(lambda: group.is_content)
        with caplog.at_level(logging.WARNING):
            here.eventually(lambda: any(each.member_epoch == -1 for each in group.asked()))
        assert "max.poll.interval.ms" in caplog.text
        with pytest.raises(CommitFailedError, match=r"call poll\(\)"):
            here.membership.commit_identity()
        group.has = None
        here.until(lambda: here.listener.words[:3] == ["assigned", "lost", "assigned"])


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("static", -2)])
def test_closing_revokes_and_leaves(instance: str | None, epoch: int) -> None:
    with membership_harness({"t": 1}, group_instance_id=instance, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.until(lambda: group.is_content)
        here.membership.close(here.deadline())
        assert here.listener.words == ["assigned", "revoked"]
        assert group.asked()[-1].member_epoch == epoch


def test_what_a_listener_raises_comes_out_of_poll_when_all_is_in_place() -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.listener.trouble = KeyError("mine")
        with pytest.raises(KeyError, match="mine"):
            here.until(lambda: False)
        here.until(lambda: group.is_content)
        assert here.listener.words == ["assigned"]


def stale(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
    refused = OffsetCommitResponsePartition(partition_index=0, error_code=errors.StaleMemberEpochError.code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[refused])])


def test_a_commit_follows_the_epoch() -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.script.always(COMMIT, lambda request, version: OffsetCommitResponse())
        here.subscribe("t")
        here.until(lambda: group.is_content)

        def moved(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
            group.epoch = 7
            return stale(request, version)

        here.script.then(COMMIT, moved, stale, stale)
        here.commits.commit({partitions("t", 0)[0]: OffsetAndMetadata(3)}, here.deadline())
        epochs = [each.generation_id_or_member_epoch for each in here.script.asked(COMMIT, OffsetCommitRequest)]
        assert epochs[0] == 1
        assert len(epochs) == 4


def test_a_commit_does_not_follow_the_epoch_for_what_others_have_by_now() -> None:
    with membership_harness({"t": 2}, **NEWER) as here:
        group = Coordinator(here, {"t": [0, 1]})
        here.subscribe("t")
        here.until(lambda: group.is_content)
        reported: list[Exception | None] = []
        here.script.then(COMMIT, None)
        here.commits.commit_async(
            {partitions("t", 0)[0]: OffsetAndMetadata(3)}, lambda offsets, problem: reported.append(problem)
        )
        here.eventually(lambda: here.script.parked)
        group.want({"t": [1]})
        here.until(lambda: group.is_content)
        here.on_engine(lambda: here.script.parked[0].set_result(stale(OffsetCommitRequest(), 9)))
        here.until(lambda: reported)
        assert isinstance(reported[0], CommitFailedError)
        assert here.script.count(COMMIT) == 1


def test_committed_offsets_are_asked_for_as_a_member() -> None:
    with membership_harness({"t": 1}, **NEWER) as here:
        group = Coordinator(here, {"t": [0]})
        here.subscribe("t")
        here.until(lambda: group.is_content)

        def reported(code: int) -> OffsetFetchResponse:
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="readers", error_code=code)])

        here.script.then(FETCH, reported(errors.StaleMemberEpochError.code), reported(0))
        here.commits.committed(partitions("t", 0), here.deadline())
        asked = here.script.asked(FETCH, OffsetFetchRequest)
        assert len(asked) == 2
        assert (asked[0].groups[0].member_epoch, asked[0].groups[0].member_id) == (1, group.asked()[0].member_id)
