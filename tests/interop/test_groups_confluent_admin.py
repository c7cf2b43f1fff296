"""confluent-kafka's admin client and groups: list, describe, offsets asked, altered and deleted, groups deleted."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from support import confluent
from support.broker import KAFKA, Broker
from support.eventually import eventually
from support.groups import group_under_test

SECONDS = 30.0
FLAVOURS: dict[str, dict[str, Any]] = {
    "classic": {"partition.assignment.strategy": "range"},
    "consumer": {"group.protocol": "consumer"},
}
TYPES = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}


def listed(client: AdminClient, **filters: Any) -> dict[str, Any]:
    result = client.list_consumer_groups(**filters).result(SECONDS)
    assert not result.errors
    return {group.group_id: group for group in result.valid}


def described(client: AdminClient, group: str) -> Any:
    return client.describe_consumer_groups([group])[group].result(SECONDS)


def offsets(client: AdminClient, group: str) -> dict[tuple[str, int], int]:
    wanted = ConsumerGroupTopicPartitions(group)
    found = client.list_consumer_group_offsets([wanted])[group].result(SECONDS)
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions}


def error_of(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(SECONDS)
    code: int = refused.value.args[0].code()
    return code


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_group_is_listed_and_described(quick_broker: Broker, topic: str, flavour: str, target_kind: str) -> None:
    if (target_kind, flavour) == (KAFKA, "consumer"):
        pytest.skip(
            "librdkafka speaks the consumer protocol from ConsumerGroupHeartbeat v1 on, which Kafka 3.9 has not"
        )
    client = confluent.admin(quick_broker.bootstrap)
    with group_under_test(quick_broker.bootstrap, topic, "confluent", **FLAVOURS[flavour]) as group:
        ann, bob = group.start("ann"), group.start("bob")
        group.settle(ann, bob)
        eventually(lambda: described(client, group.group).state == ConsumerGroupState.STABLE)
        reported = described(client, group.group)
        assert not reported.is_simple_consumer_group
        assert reported.partition_assignor == ("range" if flavour == "classic" else "uniform")
        assert reported.coordinator.port == quick_broker.port
        shares = {
            member.client_id: {(each.topic, each.partition) for each in member.assignment.topic_partitions}
            for member in reported.members
        }
        assert shares == {"ann": ann.owned(), "bob": bob.owned()}
        assert {member.host.lstrip("/") for member in reported.members} == {"127.0.0.1"}
        state, kind = ConsumerGroupState, TYPES[flavour]
        assert listed(client, states={state.STABLE})[group.group].type == kind
        assert group.group in listed(client, types={kind})
        assert group.group not in listed(client, states={state.EMPTY})
        assert group.group not in listed(client, types=set(TYPES.values()) - {kind})
        assert error_of(client.delete_consumer_groups([group.group])[group.group]) == KafkaError.NON_EMPTY_GROUP
        group.writer.send(3)
        group.read_all()
        ann.leave()
        bob.leave()
        eventually(lambda: described(client, group.group).state == ConsumerGroupState.EMPTY)
        assert offsets(client, group.group) == dict.fromkeys(group.partitions, 3)


def test_offsets_are_altered_and_deleted_with_their_group(quick_broker: Broker, topic: str) -> None:
    client = confluent.admin(quick_broker.bootstrap)
    with group_under_test(quick_broker.bootstrap, topic, "confluent") as group:
        ann = group.start("ann")
        group.settle(ann)
        group.writer.send(10)
        group.read_all()
        back = ConsumerGroupTopicPartitions(group.group, [TopicPartition(topic, 0, 4)])
        [refused] = client.alter_consumer_group_offsets([back])[group.group].result(SECONDS).topic_partitions
        assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID  # while it has members, only they commit
        ann.leave()
        eventually(lambda: described(client, group.group).state == ConsumerGroupState.EMPTY)
        client.alter_consumer_group_offsets([back])[group.group].result(SECONDS)
        assert offsets(client, group.group)[topic, 0] == 4
        bob = group.start("bob")
        group.settle(bob)
        eventually(lambda: any(note.kind == "read" for note in bob.notes))
        first = next(note.offsets for note in bob.notes if note.kind == "read")
        assert first == ((topic, 0, 4, 10),)
        bob.leave()
        eventually(lambda: described(client, group.group).state == ConsumerGroupState.EMPTY)
        client.delete_consumer_groups([group.group])[group.group].result(SECONDS)
        assert group.group not in listed(client)
        assert error_of(client.delete_consumer_groups([group.group])[group.group]) == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_go_with_their_topic(quick_broker: Broker, topic: str) -> None:
    client = confluent.admin(quick_broker.bootstrap)
    with group_under_test(quick_broker.bootstrap, topic, "confluent") as group:
        ann = group.start("ann")
        group.settle(ann)
        group.writer.send(2)
        group.read_all()
        ann.leave()
        assert offsets(client, group.group)
        client.delete_topics([topic])[topic].result(SECONDS)
        eventually(lambda: not offsets(client, group.group))
