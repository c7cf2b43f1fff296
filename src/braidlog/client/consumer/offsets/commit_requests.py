"""Committing and fetching offsets as a member of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from braidlog.client.consumer.group.member import GroupIdentity
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.requests.offset_commit import (
    NEWEST_OFFSET_COMMIT,
    OFFSET_COMMIT,
    offset_commit_codes,
    offset_commit_request,
)
from braidlog.client.requests.offset_fetch import OFFSET_FETCH, GroupMemberEpoch, offset_fetch_requests
from braidlog.core.protocol_errors import NONE
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from braidlog.wire.generated.offset_fetch import OffsetFetchRequest

__all__ = ["NEWEST", "OFFSET_COMMIT", "OFFSET_FETCH", "Offsets", "commit_errors", "commit_request", "fetch_request"]

# That of both requests which names topics.
NEWEST: Final = NEWEST_OFFSET_COMMIT

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_request(group_id: str, sender: GroupIdentity, offsets: Offsets, version: int) -> OffsetCommitRequest:
    return offset_commit_request(
        version,
        group_id,
        offsets,
        generation=sender.generation,
        member_id=sender.member_id,
        instance_id=sender.instance_id,
    )


def commit_errors(answer: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """What went wrong, by partition."""
    return {partition: code for partition, code in offset_commit_codes(answer).items() if code != NONE}


def fetch_request(
    group_id: str, sender: GroupIdentity, partitions: Iterable[TopicPartition], version: int
) -> OffsetFetchRequest:
    """For stable offsets, where the broker can tell: none of a transaction that may yet be aborted."""
    member = None
    if sender.uses_consumer_protocol and sender.is_member:
        member = GroupMemberEpoch(sender.member_id, sender.generation)
    (request,) = offset_fetch_requests(version, {group_id: partitions}, require_stable=True, member=member)
    return request
