"""Topics by name and by id, from brokers that choose what was left open and from those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.admin import topics as api
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.topics import NewPartitions, NewTopic, TopicId
from braidlog.client.requests.metadata import METADATA
from braidlog.core.errors import UserError
from braidlog.core.ids import ZERO_ID, random_id
from braidlog.core.protocol_errors import InvalidPartitionsError, UnsupportedVersionError
from braidlog.security.acls import AclOperation, operations_of
from braidlog.wire.generated.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from braidlog.wire.generated.create_topics import CreatableTopicResult, CreateTopicsResponse
from braidlog.wire.generated.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from braidlog.wire.generated.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from support.admin_fakes import ScriptedCluster, ScriptedNode

ID = TopicId(random_id())


def calls(answers: dict[int, Any], versions: dict[int, int] | None = None) -> tuple[Admin, ScriptedNode]:
    node = ScriptedNode(answers, versions)
    return admin_over(ScriptedCluster({1: node})), node


def created(request: Any) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=each.name, num_partitions=6, replication_factor=3, topic_id=ID)
            for each in request.topics
        ]
    )


def test_what_is_left_open_is_the_brokers_choice() -> None:
    topics, node = calls({api.CREATE_TOPICS: created})
    made = topics.create_topics(["a", NewTopic("b", 2, 1, {"retention.ms": "5"}), NewTopic("c", assignment=[[1, 2]])])
    assert (made["a"].partitions, made["a"].replication_factor, made["a"].topic_id) == (6, 3, ID)
    (request,) = node.asked
    assert [(each.num_partitions, each.replication_factor) for each in request.topics] == [(-1, -1), (2, 1), (-1, -1)]
    assert [(each.name, each.value) for each in request.topics[1].configs] == [("retention.ms", "5")]
    assert [(each.partition_index, each.broker_ids) for each in request.topics[2].assignments] == [(0, [1, 2])]
    assert request.timeout_ms == 1000


def test_brokers_that_do_not_choose_get_one_of_each() -> None:
    def silent(request: Any) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=each.name) for each in request.topics])

    topics, node = calls({api.CREATE_TOPICS: silent}, {api.CREATE_TOPICS: 3})
    made = topics.create_topics([NewTopic("a"), NewTopic("b", partitions=4)])
    assert [(each.num_partitions, each.replication_factor) for each in node.asked[0].topics] == [(1, 1), (4, 1)]
    assert (made["b"].partitions, made["b"].topic_id) == (4, None)


def test_a_topic_is_deleted_by_the_name_or_id_that_was_given() -> None:
    other = TopicId(random_id())

    def delete(request: Any) -> DeleteTopicsResponse:
        # As Kafka: an answer has both, whatever was asked for; an id that is unknown has no name.
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name="by-name", topic_id=random_id()),
                DeletableTopicResult(name="by-id", topic_id=ID),
                DeletableTopicResult(name=None, topic_id=other, error_code=100),
                DeletableTopicResult(name="gone", topic_id=ZERO_ID, error_code=3),
            ]
        )

    topics, node = calls({api.DELETE_TOPICS: delete})
    deleted = topics.delete_topics(["by-name", ID, other, "gone"])
    assert (deleted["by-name"], deleted[ID]) == (None, None)
    assert list(deleted.errors) == [other, "gone"]
    assert str(other) in str(deleted.errors[other])
    assert [(each.name, each.topic_id) for each in node.asked[0].topics] == [
        ("by-name", ZERO_ID),
        (None, ID),
        (None, other),
        ("gone", ZERO_ID),
    ]


def test_brokers_that_know_no_ids_take_names() -> None:
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult(name="a")])
    topics, node = calls({api.DELETE_TOPICS: lambda request: answer}, {api.DELETE_TOPICS: 5})
    assert topics.delete_topics(["a"]) == {"a": None}
    assert node.asked[0].topic_names == ["a"]
    with pytest.raises(UnsupportedVersionError):
        topics.delete_topics([ID])


def test_partitions_are_counted_in_all() -> None:
    answer = CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name="a"), CreatePartitionsTopicResult(name="b", error_code=37)]
    )
    topics, node = calls({api.CREATE_PARTITIONS: lambda request: answer})
    grown = topics.create_partitions({"a": 4, "b": NewPartitions(3, [[1], [2]])}, validate_only=True)
    assert isinstance(grown.errors["b"], InvalidPartitionsError)
    (request,) = node.asked
    assert request.validate_only
    assert [(each.name, each.count) for each in request.topics] == [("a", 4), ("b", 3)]
    assert request.topics[0].assignments is None
    assert [each.broker_ids for each in request.topics[1].assignments] == [[1], [2]]


def test_names_and_ids_are_described_by_requests_of_their_own() -> None:
    partition = MetadataResponsePartition(
        partition_index=1, leader_id=-1, leader_epoch=4, replica_nodes=[1, 2], isr_nodes=[1], offline_replicas=[2]
    )

    def describe(request: Any) -> MetadataResponse:
        names = [each.name or "by-id" for each in request.topics]
        topics = [
            MetadataResponseTopic(name=name, topic_id=ID, partitions=[partition], topic_authorized_operations=0b1100)
            for name in names
        ]
        return MetadataResponse(topics=topics)

    topics, node = calls({METADATA: describe})
    found = topics.describe_topics([ID, "a"], authorized_operations=True)
    assert (found[ID].name, found["a"].name) == ("by-id", "a")
    (described,) = found["a"].partitions
    assert (described.leader, described.replicas, described.in_sync, described.offline) == (None, (1, 2), (1,), (2,))
    assert found["a"].authorized_operations == {AclOperation.ALL, AclOperation.READ}
    assert [len(request.topics) for request in node.asked] == [1, 1]
    assert not any(request.allow_auto_topic_creation for request in node.asked)


def test_a_topic_that_is_told_twice_where_to_be() -> None:
    topics, _ = calls({})
    with pytest.raises(UserError, match="leave out partitions"):
        topics.create_topics([NewTopic("a", partitions=1, assignment=[[1]])])


def test_ids_and_operations_as_people_see_them() -> None:
    assert TopicId.parse(str(ID)) == ID
    assert repr(ID) == f"TopicId({ID})"
    with pytest.raises(ValueError, match="22 characters"):
        TopicId.parse("short")
    assert operations_of(-(2**31)) is None
    assert operations_of(0) == frozenset()
    assert AclOperation(99) is AclOperation.UNKNOWN
