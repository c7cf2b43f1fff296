from __future__ import annotations

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core import protocol_errors as errors
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
)
from support.membership_harness import (
    COMMIT,
    FIND,
    membership_harness,
)
from support.offset_commits import ONE, ZERO, answer, as_member, by_itself, written

Told = tuple[dict[TopicPartition, OffsetAndMetadata], Exception | None]


def test_offsets_may_be_given_with_metadata_and_epoch() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.commits.commit({ONE: OffsetAndMetadata(9, "läuft", 3)}, here.deadline())
        [request] = here.script.asked(COMMIT, OffsetCommitRequest)
        assert written(request) == {ONE: (9, "läuft", 3)}
        with pytest.raises(UserError, match="t-1: offset -4"):
            here.commits.commit({ONE: OffsetAndMetadata(-4)}, here.deadline())


def test_a_member_commits_in_its_generation() -> None:
    with membership_harness({"t": 2}, group_instance_id="static") as here:
        as_member(here)
        here.commits.commit(None, here.deadline())
        [request] = here.script.asked(COMMIT, OffsetCommitRequest)
        assert (request.generation_id_or_member_epoch, request.member_id) == (1, "member-1")
        assert request.group_instance_id == "static"


def test_a_commit_is_sent_in_the_generation_it_was_asked_for_in() -> None:
    """The coordinator takes long to be found: meanwhile the group goes on, and others have the partition."""
    with membership_harness({"t": 2}, heartbeat_interval_ms=4_000) as here:
        as_member(here)
        reported: list[Told] = []
        here.script.then(COMMIT, answer(errors.NotCoordinatorError))
        here.script.then(FIND, None)
        here.commits.commit_async(None)
        here.eventually(lambda: here.script.count(COMMIT) == 1)
        here.commits.commit_async({ZERO: OffsetAndMetadata(6)}, lambda *each: reported.append(each))
        here.eventually(lambda: here.script.parked)
        [found] = here.script.parked
        here.membership.enforce_rebalance("a test wants it")
        here.until(lambda: "revoked" in here.listener.words)
        here.script.then(COMMIT, answer(errors.IllegalGenerationError))
        here.on_engine(lambda: found.set_result(here.script._found(None, 4)))
        here.until(lambda: reported)
        assert here.script.asked(COMMIT, OffsetCommitRequest)[1].generation_id_or_member_epoch == 1
        assert isinstance(reported[0][1], errors.RebalanceInProgressError)
        here.settle()
        assert here.listener.words == ["assigned", "revoked", "assigned"], "the new generation is not hurt by it"
