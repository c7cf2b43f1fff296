"""Committed offsets: a coordinator that answers, and what was written to it."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from support.membership_harness import (
    COMMIT,
    MembershipHarness,
    partitions,
)
from support.scripted_group import Coordinator

ZERO, ONE = partitions("t", 0, 1)


def answer(error: type[ProtocolError] | None = None) -> Callable[[OffsetCommitRequest, int], OffsetCommitResponse]:
    """Every partition of the request is answered so."""
    code = 0 if error is None else error.code

    def respond(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return respond


def written(request: OffsetCommitRequest) -> dict[TopicPartition, tuple[int, str | None, int]]:
    return {
        TopicPartition(topic.name, each.partition_index): (
            each.committed_offset,
            each.committed_metadata,
            each.committed_leader_epoch,
        )
        for topic in request.topics
        for each in topic.partitions
    }


def by_itself(here: MembershipHarness) -> None:
    """A consumer that assigns partitions to itself."""
    here.script.always(COMMIT, answer())
    here.subscription.assign([ZERO, ONE])
    here.position(ZERO, 5)


def as_member(here: MembershipHarness) -> Coordinator:
    group = Coordinator(here.script)
    here.script.always(COMMIT, answer())
    here.subscribe("t")
    here.settle()
    here.position(ZERO, 5)
    return group
