"""The assignment that members of the classic protocol expect, in the bytes that their leader would have sent."""

from __future__ import annotations

from braidlog.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    Assignment,
    ClassicMemberMetadata,
    in_order,
    partitions_of,
)
from braidlog.coordinator.group.topics import Topics
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    OwnedTopicPartition,
)
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes

NEWEST = 3


def assignment_bytes(assignment: Assignment, side: ClassicMemberMetadata, topics: Topics) -> bytes:
    """In the version of the member's own subscription."""
    entries = []
    for topic_id, numbers in in_order(assignment):
        name = topics.name_of(topic_id)
        if name is not None:
            entries.append(AssignedTopicPartition(topic=name, partitions=numbers))
    return version_prefixed_bytes(ConsumerProtocolAssignment(assigned_partitions=entries), _told_version(side))


def _told_version(side: ClassicMemberMetadata) -> int:
    """Only what a member offers under the chosen protocol was understood; the first one may be anything."""
    try:
        version = read_version_prefix(side.protocols[0].metadata) if side.protocols else 0
    except MalformedError:
        return 0
    return max(0, min(version, NEWEST))


def parse_assignment(content: bytes, topics: Topics) -> Assignment | None:
    """
    ```
    version     int16    newer than known: read as the newest known
    assignment  ConsumerProtocolAssignment in that version; nothing at all before the first sync
    ```
    None if it cannot be understood. Topics that are gone are left out.
    """
    if not content:
        return NO_PARTITIONS
    try:
        version = read_version_prefix(content)
        if version < 0:
            return None
        decoded = ConsumerProtocolAssignment.decode(reader_after_version(content), min(version, NEWEST))
    except MalformedError:
        return None
    return by_id([(entry.topic, entry.partitions) for entry in decoded.assigned_partitions], topics)


def owned_by_id(owned: list[OwnedTopicPartition], topics: Topics) -> Assignment:
    return by_id([(entry.topic, entry.partitions) for entry in owned], topics)


def by_id(named: list[tuple[str, list[int]]], topics: Topics) -> Assignment:
    entries = []
    for name, numbers in named:
        facts = topics.get(name)
        if facts is not None:
            entries.append((facts.topic_id, [number for number in numbers if 0 <= number < facts.partitions]))
    return partitions_of(entries)
