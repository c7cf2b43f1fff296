from __future__ import annotations

import pytest

from braidlog.coordinator.group.classic.member import MemberProtocol
from braidlog.coordinator.group.consumer.classic_assignment import (
    NEWEST,
    assignment_bytes,
    by_id,
    owned_by_id,
    parse_assignment,
)
from braidlog.coordinator.group.consumer.member import ClassicMemberMetadata
from braidlog.wire.generated.consumer_protocol import OwnedTopicPartition
from support.consumer_groups import ChangingTopics, numbers, subscription

TOPICS = ChangingTopics(t=4, u=2)
T, U = TOPICS.facts["t"].topic_id, TOPICS.facts["u"].topic_id


def side(metadata: bytes | None) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(1000, () if metadata is None else (MemberProtocol("range", metadata),))


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_an_assignment_is_written_in_the_version_of_the_subscription(version: int) -> None:
    content = assignment_bytes({T: numbers(3, 1), U: numbers(0)}, side(subscription(["t"], version=version)), TOPICS)
    assert int.from_bytes(content[:2], "big") == version
    assert parse_assignment(content, TOPICS) == {T: numbers(1, 3), U: numbers(0)}


@pytest.mark.parametrize(
    ("metadata", "version"), [(None, 0), (b"", 0), (b"\xff\xff", 0), ((99).to_bytes(2, "big"), NEWEST)]
)
def test_where_the_version_is_not_known(metadata: bytes | None, version: int) -> None:
    assert assignment_bytes({}, side(metadata), TOPICS)[:2] == version.to_bytes(2, "big")


def test_topics_and_partitions_that_are_gone_are_left_out() -> None:
    content = assignment_bytes({T: numbers(0), bytes(16): numbers(1)}, side(None), TOPICS)
    assert parse_assignment(content, TOPICS) == {T: numbers(0)}
    assert by_id([("t", [3, 4, -1]), ("gone", [0])], TOPICS) == {T: numbers(3)}
    assert owned_by_id([OwnedTopicPartition(topic="u", partitions=[1])], TOPICS) == {U: numbers(1)}


def test_no_bytes_are_no_partitions_and_foreign_ones_are_not_understood() -> None:
    assert parse_assignment(b"", TOPICS) == {}
    for content in (b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff"):
        assert parse_assignment(content, TOPICS) is None
