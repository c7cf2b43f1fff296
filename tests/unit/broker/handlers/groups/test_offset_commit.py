"""The handlers of offsets: what never reaches the coordinator, and how its answers are told in each version."""

from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.net.channel import ANONYMOUS
from braidlog.security.acls import Acl, AclOperation
from support.authorized_broker import allow_group, allow_topic, authorizer_of
from support.offset_handlers import (
    OffsetHandlers,
    codes,
)
from support.offset_requests import commit_request, delete_request, fetch_request

UNKNOWN = UnknownTopicOrPartitionError.code


# Commit


def test_what_is_not_there_is_answered_beside_what_is() -> None:
    world = OffsetHandlers()
    request = commit_request(8, "g", {("t", 0): 1, ("t", 9): 2, ("none", 0): 3, ("u", 2): 4})
    reported = codes(world.ask("OffsetCommit", 8, request))
    assert reported == {("t", 0): 0, ("t", 9): UNKNOWN, ("none", 0): UNKNOWN, ("u", 2): 0}
    assert world.driver.offsets_of("g") == {("t", 0): 1, ("u", 2): 4}


def test_the_coordinator_is_not_asked_about_nothing() -> None:
    world = OffsetHandlers()
    assert codes(world.ask("OffsetCommit", 8, commit_request(8, "g", {("none", 0): 1}))) == {("none", 0): UNKNOWN}
    assert codes(world.ask("OffsetCommit", 8, commit_request(8, "g", {}))) == {}
    assert world.groups.asked == 0


def test_a_refusal_is_told_for_each_partition_that_is_there() -> None:
    world = OffsetHandlers()
    world.groups.error = NotCoordinatorError()
    reported = codes(world.ask("OffsetCommit", 8, commit_request(8, "g", {("t", 0): 1, ("none", 0): 2})))
    assert reported == {("t", 0): NotCoordinatorError.code, ("none", 0): UNKNOWN}


def test_commit_by_topic_id() -> None:
    world = OffsetHandlers()
    topics = world.driver.topics
    ids = {"t": topics.id_of("t"), "none": b"\x01" * 16}
    request = commit_request(10, "g", {("t", 0): 1, ("t", 9): 2, ("none", 0): 3}, topic_ids=ids)
    answer = world.ask("OffsetCommit", 10, request)
    reported = {(topic.topic_id, p.partition_index): p.error_code for topic in answer.topics for p in topic.partitions}
    assert reported == {(ids["t"], 0): 0, (ids["t"], 9): UNKNOWN, (ids["none"], 0): UnknownTopicIdError.code}
    assert world.driver.offsets_of("g") == {("t", 0): 1}


# Version 0


def test_version_0_is_kept_in_the_store() -> None:
    world = OffsetHandlers()
    request = commit_request(0, "g", {("t", 0): (4, "lost"), ("t", 1): (5, "x" * 11), ("none", 0): 6})
    reported = codes(world.ask_store("OffsetCommit", request))
    assert reported == {("t", 0): 0, ("t", 1): OffsetMetadataTooLargeError.code, ("none", 0): UNKNOWN}
    answer = world.ask_store("OffsetFetch", fetch_request(0, "g", {"t": [0, 1, 9, -1], "none": [0], "..": [0]}))
    partitions = answer.topics[0].partitions
    assert [(p.committed_offset, p.error_code) for p in partitions] == [(4, 0)] + [(-1, UNKNOWN)] * 3
    assert [p.error_code for topic in answer.topics[1:] for p in topic.partitions] == [UNKNOWN, UNKNOWN]
    assert world.groups.asked == 0


def test_version_0_refuses_what_is_no_name() -> None:
    world = OffsetHandlers()
    assert codes(world.ask_store("OffsetCommit", commit_request(0, "a/b", {("t", 0): 4}))) == {
        ("t", 0): InvalidGroupIdError.code
    }
    assert codes(world.ask_store("OffsetFetch", fetch_request(0, "a/b", {"t": [0]}))) == {
        ("t", 0): InvalidGroupIdError.code
    }


UNKNOWN = UnknownTopicOrPartitionError.code


def test_delete() -> None:
    world = OffsetHandlers()
    wanted = {"t": [0, 9], "none": [0]}
    answer = world.ask("OffsetDelete", 0, delete_request("g", wanted))
    assert (answer.error_code, answer.topics) == (GroupIdNotFoundError.code, [])
    world.driver.commit("g", "t", 0, 5)
    answer = world.ask("OffsetDelete", 0, delete_request("g", wanted))
    assert answer.error_code == 0
    assert codes(answer) == {("t", 0): 0, ("t", 9): UNKNOWN, ("none", 0): UNKNOWN}
    assert world.driver.offsets_of("g") == {}


# Access


def restricted(*acls: Acl) -> OffsetHandlers:
    """Who asks has not logged in."""
    world = OffsetHandlers()
    world.authorizer = authorizer_of(*(acl._replace(principal=f"User:{ANONYMOUS}") for acl in acls))
    return world


FORBIDDEN = TopicAuthorizationFailedError.code


def test_offsets_of_topics_that_may_not_be_read_are_not_kept() -> None:
    world = restricted(allow_group("g", AclOperation.READ), allow_topic("t", AclOperation.READ))
    offsets = {("t", 0): 1, ("t", 9): 1, ("u", 0): 2, ("none", 0): 3}
    reported = codes(world.ask("OffsetCommit", 8, commit_request(8, "g", offsets)))
    assert reported == {("t", 0): 0, ("t", 9): UNKNOWN, ("u", 0): FORBIDDEN, ("none", 0): FORBIDDEN}
    assert world.driver.offsets_of("g") == {("t", 0): 1}
    topics = world.driver.topics
    ids = {"t": topics.id_of("t"), "u": topics.id_of("u"), "none": b"\x01" * 16}
    request = commit_request(10, "g", {("t", 0): 4, ("u", 0): 5, ("none", 0): 6}, topic_ids=ids)
    answer = world.ask("OffsetCommit", 10, request)
    reported_ids = {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}
    assert reported_ids == {ids["t"]: 0, ids["u"]: FORBIDDEN, ids["none"]: UnknownTopicIdError.code}


def test_a_group_that_may_not_be_read_keeps_nothing() -> None:
    world = restricted(allow_topic("t", AclOperation.READ), allow_group("g", AclOperation.DESCRIBE))
    with pytest.raises(GroupAuthorizationFailedError):
        world.begin("OffsetCommit", 8, commit_request(8, "g", {("t", 0): 1}))
    with pytest.raises(GroupAuthorizationFailedError):
        world.begin("OffsetDelete", 0, delete_request("g", {"t": [0]}))
    assert world.groups.asked == 0


def test_offsets_of_topics_that_may_not_be_read_are_not_deleted() -> None:
    world = restricted(
        allow_group("g", AclOperation.READ), allow_group("g", AclOperation.DELETE), allow_topic("*", AclOperation.READ)
    )
    world.ask("OffsetCommit", 8, commit_request(8, "g", {("t", 0): 1, ("u", 0): 2}))
    world.authorizer = restricted(allow_group("g", AclOperation.DELETE), allow_topic("t", AclOperation.READ)).authorizer
    reported = codes(world.ask("OffsetDelete", 0, delete_request("g", {"t": [0], "u": [0], "none": [0]})))
    assert reported == {("t", 0): 0, ("u", 0): FORBIDDEN, ("none", 0): FORBIDDEN}
    assert world.driver.offsets_of("g") == {("u", 0): 2}
