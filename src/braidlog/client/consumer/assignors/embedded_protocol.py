"""The bytes in which members send their subscriptions and leaders their assignments.

version  int16    newer than known: read as the newest known, the rest is for others
message  ConsumerProtocolSubscription or ConsumerProtocolAssignment in that version
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from braidlog.client.consumer.assignors.interface import Assignment, Subscriber
from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartition,
)
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes

NEWEST: Final = 3


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def write_subscription(
    topics: Sequence[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
    return version_prefixed_bytes(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=user_data,
            owned_partitions=[
                OwnedTopicPartition(topic=topic, partitions=sorted(numbers))
                for topic, numbers in by_topic(owned).items()
            ],
            generation_id=generation,
            rack_id=rack,
        ),
        NEWEST,
    )


def read_subscription(member_id: str, instance_id: str | None, content: bytes) -> Subscriber:
    """A member as the leader sees it; raises MalformedError where no client could have written that."""
    version = read_version_prefix(content)
    if version < 0:
        raise MalformedError(f"the subscription of {member_id} has version {version}")
    decoded = ConsumerProtocolSubscription.decode(reader_after_version(content), min(version, NEWEST))
    return Subscriber(
        member_id,
        tuple(decoded.topics),
        instance_id,
        tuple([TopicPartition(each.topic, number) for each in decoded.owned_partitions for number in each.partitions]),
        decoded.generation_id,
        decoded.rack_id or None,
        decoded.user_data,
    )


def write_assignment(assignment: Assignment) -> bytes:
    """The leader does not know what its fellows read; all versions have the same bytes after the first two."""
    entries = [
        AssignedTopicPartition(topic=topic, partitions=sorted(numbers))
        for topic, numbers in by_topic(assignment.partitions).items()
    ]
    return version_prefixed_bytes(
        ConsumerProtocolAssignment(assigned_partitions=entries, user_data=assignment.user_data), 1
    )


def read_assignment(content: bytes) -> Assignment:
    """A member that the leader left out gets no bytes at all."""
    if not content:
        return Assignment()
    version = read_version_prefix(content)
    if version < 0:
        raise MalformedError(f"an assignment has version {version}")
    decoded = ConsumerProtocolAssignment.decode(reader_after_version(content), min(version, NEWEST))
    partitions = [
        TopicPartition(each.topic, number) for each in decoded.assigned_partitions for number in each.partitions
    ]
    return Assignment(partitions, decoded.user_data)
