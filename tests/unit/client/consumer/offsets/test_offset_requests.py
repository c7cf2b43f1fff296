from __future__ import annotations

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.errors import NoConnection
from braidlog.core import protocol_errors as errors
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from support.membership_harness import (
    COMMIT,
    FETCH,
    FIND,
    membership_harness,
)
from support.offset_commits import ONE, ZERO, by_itself


def found(group_error: int = 0, **offsets: tuple[int, int]) -> OffsetFetchResponse:
    """`p0=(offset, error code)` …"""
    each = [
        OffsetFetchResponsePartitions(
            partition_index=int(name[1:]),
            committed_offset=offset,
            committed_leader_epoch=2,
            metadata="m",
            error_code=code,
        )
        for name, (offset, code) in offsets.items()
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=each)]
    group = OffsetFetchResponseGroup(group_id="readers", error_code=group_error, topics=topics)
    return OffsetFetchResponse(groups=[group])


def test_committed_offsets_are_read() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.script.always(FETCH, lambda request, version: found(p0=(7, 0), p1=(-1, 0)))
        assert here.commits.committed([ZERO, ONE], here.deadline()) == {ZERO: OffsetAndMetadata(7, "m", 2), ONE: None}
        [request] = here.script.asked(FETCH, OffsetFetchRequest)
        assert request.require_stable
        assert (request.groups[0].member_id, request.groups[0].member_epoch) == (None, -1)


@pytest.mark.parametrize("version", range(8))
def test_committed_offsets_of_older_brokers(version: int) -> None:
    old = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name="t", partitions=[OffsetFetchResponsePartition(partition_index=0, committed_offset=7)]
            )
        ]
    )
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.script.versions = {FETCH: version, COMMIT: version}
        here.script.always(FETCH, lambda request, version: old)
        assert here.commits.committed([ZERO], here.deadline()) == {ZERO: OffsetAndMetadata(7)}
        here.commits.commit(None, here.deadline())
        [request] = here.script.asked(FETCH, OffsetFetchRequest)
        assert request.require_stable == (version >= 7)


def test_offsets_of_an_open_transaction_are_waited_for() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        unstable = errors.UnstableOffsetCommitError.code
        moved = errors.NotCoordinatorError.code
        here.script.then(FETCH, found(p0=(-1, unstable)), found(moved), NoConnection("cut"), found(p0=(3, 0)))
        assert here.commits.committed([ZERO], here.deadline()) == {ZERO: OffsetAndMetadata(3, "m", 2)}
        assert here.script.count(FIND) == 3


def test_a_look_up_that_cannot_pass_is_raised() -> None:
    with membership_harness({"t": 2}) as here:
        by_itself(here)
        here.script.then(FETCH, found(errors.GroupAuthorizationFailedError.code))
        with pytest.raises(errors.GroupAuthorizationFailedError):
            here.commits.committed([ZERO], here.deadline())
        here.script.then(FETCH, found(p0=(-1, errors.UnknownTopicOrPartitionError.code)))
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="t-0"):
            here.commits.committed([ZERO], here.deadline())
        assert here.commits.committed([], here.deadline()) == {}
