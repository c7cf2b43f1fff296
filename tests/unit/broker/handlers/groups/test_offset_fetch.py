from __future__ import annotations

from typing import Any

import pytest

from braidlog.broker.handlers.groups.offset_fetch import OffsetFetchHandler
from braidlog.core.protocol_errors import (
    GroupAuthorizationFailedError,
    InvalidGroupIdError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnstableOffsetCommitError,
)
from braidlog.net.channel import ANONYMOUS
from braidlog.security.acls import Acl, AclOperation
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from support.authorized_broker import allow_group, allow_topic, authorizer_of
from support.offset_handlers import (
    OffsetHandlers,
    codes,
    codes_and_offsets,
)
from support.offset_requests import commit_request, fetch_request


@pytest.mark.parametrize("version", range(1, 10))
def test_fetch_in_the_form_of_each_version(version: int) -> None:
    world = OffsetHandlers()
    world.driver.commit("g", "t", 1, 5, metadata="m", leader_epoch=3)
    answer = world.ask("OffsetFetch", version, fetch_request(version, "g", {"t": [0, 1], "none": [0]}))
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    found = {(t.name, p.partition_index): (p.committed_offset, p.metadata) for t in topics for p in t.partitions}
    assert found == {("t", 0): (-1, ""), ("t", 1): (5, "m"), ("none", 0): (-1, "")}
    assert topics[0].partitions[1].committed_leader_epoch == (3 if version >= 5 else -1)


@pytest.mark.parametrize("version", range(1, 11))
def test_a_failed_fetch_in_the_form_of_each_version(version: int) -> None:
    world = OffsetHandlers()
    world.groups.error = NotCoordinatorError()
    request = fetch_request(version, "g", {"t": [0]})
    answer = world.ask("OffsetFetch", version, request)
    assert codes(answer) == ({("t", 0): NotCoordinatorError.code} if version < 2 else {})
    assert answer.error_code == (NotCoordinatorError.code if 2 <= version < 8 else 0)
    if version >= 8:
        assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", NotCoordinatorError.code)]
    refused: Any = OffsetFetchHandler.error_response(
        fetch_request(version, "g", {"t": [0]}), version, NotCoordinatorError()
    )
    assert codes(refused) == codes(answer)


def test_groups_are_answered_in_their_order_whatever_each_gets() -> None:
    world = OffsetHandlers()
    world.driver.commit("g", "t", 0, 5)
    world.driver.commit_txn(7, "g", {("t", 0): 6})
    world.driver.shard.group("h").refuses = InvalidGroupIdError()
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("h", "g", "i")]
    answer = world.ask("OffsetFetch", 8, OffsetFetchRequest(groups=groups, require_stable=True))
    assert [(g.group_id, g.error_code) for g in answer.groups] == [("h", InvalidGroupIdError.code), ("g", 0), ("i", 0)]
    assert answer.groups[1].topics[0].partitions[0].error_code == UnstableOffsetCommitError.code
    assert world.ask("OffsetFetch", 8, OffsetFetchRequest(groups=[])).groups == []


def test_fetch_by_topic_id() -> None:
    world = OffsetHandlers()
    topics = world.driver.topics
    world.driver.commit("g", "t", 0, 5)
    world.driver.commit("g", "u", 0, 6)
    asked = [
        OffsetFetchRequestTopics(topic_id=topics.id_of("t"), partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(topic_id=b"\x01" * 16, partition_indexes=[2]),
    ]
    group = OffsetFetchRequestGroup(group_id="g", topics=asked)
    answer = world.ask("OffsetFetch", 10, OffsetFetchRequest(groups=[group])).groups[0]
    found = {
        (topic.topic_id, p.partition_index): (p.committed_offset, p.error_code)
        for topic in answer.topics
        for p in topic.partitions
    }
    assert found == {
        (topics.id_of("t"), 0): (5, 0),
        (topics.id_of("t"), 1): (-1, 0),
        (b"\x01" * 16, 2): (-1, UnknownTopicIdError.code),
    }
    # All offsets: those of a topic that is gone, and so has no id, are left out.
    del topics.there["u"]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    answer = world.ask("OffsetFetch", 10, everything).groups[0]
    assert [topic.topic_id for topic in answer.topics] == [topics.id_of("t")]


MANY = [*range(2, 700), 0, 1, 0, *range(2, 700)]


@pytest.mark.parametrize("version", range(1, 11))
def test_very_many_partitions_are_fetched_piece_by_piece(version: int) -> None:
    world = OffsetHandlers()
    world.driver.commit("g", "t", 1, 5)
    world.driver.commit("g", "u", 0, 6)
    ids = {name: world.driver.topics.id_of(name) for name in ("t", "u")}
    asked: list[tuple[str, list[int]]] = [("u", [0]), ("t", MANY), ("u", [1, 0]), ("t", []), ("t", MANY[:499])]
    request = fetch_request(version, "g", {})
    topics: Any = OffsetFetchRequestTopic if version < 8 else OffsetFetchRequestTopics
    named = [topics(name=name, partition_indexes=indexes) for name, indexes in asked]
    if version >= 10:
        named = [topics(topic_id=ids[name], partition_indexes=indexes) for name, indexes in asked]
    if version < 8:
        request.topics = named
    else:
        request.groups[0].topics = named
    answer = world.ask_much("OffsetFetch", version, request)
    assert world.groups.asked > 3
    found = answer.groups[0].topics if version >= 8 else answer.topics
    names = [topic.topic_id if version >= 10 else topic.name for topic in found]
    assert names == [ids[name] if version >= 10 else name for name, _ in asked]
    assert [[p.partition_index for p in topic.partitions] for topic in found] == [indexes for _, indexes in asked]
    offsets = {"t": {1: 5}, "u": {0: 6}}
    assert [[p.committed_offset for p in topic.partitions] for topic in found] == [
        [offsets[name].get(index, -1) for index in indexes] for name, indexes in asked
    ]


@pytest.mark.parametrize("version", range(1, 10))
def test_a_failed_fetch_of_very_many_partitions_is_told_as_any(version: int) -> None:
    world = OffsetHandlers()
    world.groups.error = NotCoordinatorError()
    answer = world.ask_much("OffsetFetch", version, fetch_request(version, "g", {"t": MANY}))
    assert answer == OffsetFetchHandler.error_response(
        fetch_request(version, "g", {"t": MANY}), version, NotCoordinatorError()
    )


def test_very_many_groups_are_answered_in_their_order() -> None:
    world = OffsetHandlers()
    world.driver.commit("g500", "t", 0, 5)
    world.driver.shard.group("g3").refuses = InvalidGroupIdError()
    named = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=f"g{number}", topics=named) for number in range(1000)]
    groups.append(OffsetFetchRequestGroup(group_id="g500", topics=None))
    answer = world.ask_much("OffsetFetch", 8, OffsetFetchRequest(groups=groups))
    assert [group.group_id for group in answer.groups] == [group.group_id for group in groups]
    assert [group.group_id for group in answer.groups if group.error_code] == ["g3"]
    found = [place for place, group in enumerate(answer.groups) if codes_and_offsets(group) == [(0, 5)]]
    assert found == [500, 1000]


# Access


def restricted(*acls: Acl) -> OffsetHandlers:
    """Who asks has not logged in."""
    world = OffsetHandlers()
    world.authorizer = authorizer_of(*(acl._replace(principal=f"User:{ANONYMOUS}") for acl in acls))
    return world


def committed() -> OffsetHandlers:
    world = OffsetHandlers()
    world.ask("OffsetCommit", 8, commit_request(8, "g", {("t", 0): 1, ("u", 0): 2}))
    return world


SEES_T = (allow_group("g", AclOperation.DESCRIBE), allow_topic("t", AclOperation.DESCRIBE))
FORBIDDEN = TopicAuthorizationFailedError.code


@pytest.mark.parametrize("version", [1, 5, 8, 9])
def test_offsets_of_topics_that_may_not_be_described_are_not_told(version: int) -> None:
    world = committed()
    world.authorizer = restricted(*SEES_T).authorizer
    answer = world.ask("OffsetFetch", version, fetch_request(version, "g", {"t": [0], "u": [0], "none": [0]}))
    group = answer.groups[0] if version >= 8 else answer
    assert [topic.name for topic in group.topics] == ["t", "u", "none"]
    assert codes_and_offsets(group) == [(0, 1), (FORBIDDEN, -1), (FORBIDDEN, -1)]


@pytest.mark.parametrize("version", [2, 8])
def test_everything_is_everything_that_may_be_described(version: int) -> None:
    world = committed()
    world.authorizer = restricted(*SEES_T).authorizer
    assert codes(world.ask("OffsetFetch", version, fetch_request(version, "g", None))) == {("t", 0): 0}


def test_each_group_has_its_own_refusal() -> None:
    world = committed()
    world.authorizer = restricted(*SEES_T).authorizer
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in ("other", "g")]
    answer = world.ask("OffsetFetch", 8, OffsetFetchRequest(groups=groups))
    assert [(group.group_id, group.error_code, len(group.topics)) for group in answer.groups] == [
        ("other", GroupAuthorizationFailedError.code, 0),
        ("g", 0, 1),
    ]


def test_version_0_tells_of_what_may_be_described() -> None:
    world = OffsetHandlers()
    world.ask_store("OffsetCommit", commit_request(0, "g", {("t", 0): 4, ("u", 0): 5}))
    world.authorizer = restricted(*SEES_T).authorizer
    assert codes(world.ask_store("OffsetFetch", fetch_request(0, "g", {"t": [0], "u": [0]}))) == {
        ("t", 0): 0,
        ("u", 0): FORBIDDEN,
    }
    world.authorizer = restricted(allow_topic("t", AclOperation.DESCRIBE)).authorizer
    refused = codes(world.ask_store("OffsetFetch", fetch_request(0, "g", {"t": [0]})))
    assert refused == {("t", 0): GroupAuthorizationFailedError.code}


def test_very_many_partitions_are_told_of_as_few_are() -> None:
    world = committed()
    world.authorizer = restricted(*SEES_T).authorizer
    many = list(range(600))
    answer = world.ask_much("OffsetFetch", 8, fetch_request(8, "g", {"t": many, "u": many}))
    (group,) = answer.groups
    found = {topic.name: {each.error_code for each in topic.partitions} for topic in group.topics}
    assert found["u"] == {FORBIDDEN}
    assert FORBIDDEN not in found["t"]
