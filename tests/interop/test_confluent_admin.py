"""confluent-kafka's AdminClient: topics, partitions, configs, records, offsets, the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from support import confluent
from support.broker import Broker, StartBroker
from support.eventually import eventually
from support.samples import BASE_TIMESTAMP_MS, plain_samples


def refused_with(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(30)
    code: int = refused.value.args[0].code()
    return code


def describe(broker: Broker, kind: Any, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    admin = confluent.admin(broker.bootstrap)
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return entries


def test_create_list_and_delete(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)
    confluent.create_topic(broker.bootstrap, topic, partitions=4, retention_ms="3600000")
    listed = admin.list_topics(timeout=30)
    assert sorted(listed.topics[topic].partitions) == [0, 1, 2, 3]
    assert admin.delete_topics([topic])[topic].result(30) is None
    eventually(lambda: topic not in admin.list_topics(timeout=30).topics)
    assert refused_with(admin.delete_topics([topic])[topic]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_deleted_topic_can_be_made_again_empty(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)
    for _ in range(2):
        confluent.create_topic(broker.bootstrap, topic)
        confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(3))
        assert len(confluent.read_all(broker.bootstrap, topic)) == 3
        admin.delete_topics([topic])[topic].result(30)


@pytest.mark.parametrize(
    ("name", "extra", "code"),
    [
        ("bad name!", {}, KafkaError.TOPIC_EXCEPTION),
        (".", {}, KafkaError.TOPIC_EXCEPTION),
        ("..", {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, {}, KafkaError.TOPIC_EXCEPTION),
        ("", {}, KafkaError.TOPIC_EXCEPTION),
        ("no-partitions", {"num_partitions": 0}, KafkaError.INVALID_PARTITIONS),
        ("too-many-copies", {"replication_factor": 5}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("no-such-config", {"config": {"no.such.setting": "1"}}, KafkaError.INVALID_CONFIG),
        ("bad-config-value", {"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG),
        ("bad-assignment", {"replica_assignment": [[97]]}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_that_cannot_be_is_refused(broker: Broker, name: str, extra: dict[str, Any], code: int) -> None:
    arguments: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1, **extra}
    if "replica_assignment" in extra:
        del arguments["replication_factor"]
    admin = confluent.admin(broker.bootstrap)
    assert refused_with(admin.create_topics([NewTopic(name, **arguments)])[name]) == code
    assert name not in admin.list_topics(timeout=30).topics


def test_a_topic_is_created_once(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    admin = confluent.admin(broker.bootstrap)
    new = NewTopic(topic, num_partitions=1, replication_factor=1)
    assert refused_with(admin.create_topics([new])[topic]) == KafkaError.TOPIC_ALREADY_EXISTS


def test_names_that_collide_as_metrics_are_refused(broker: Broker, topic: str) -> None:
    dotted = f"{topic}.a"
    confluent.create_topic(broker.bootstrap, dotted)
    underscored = f"{topic}_a"
    new = NewTopic(underscored, num_partitions=1, replication_factor=1)
    admin = confluent.admin(broker.bootstrap)
    assert refused_with(admin.create_topics([new])[underscored]) == KafkaError.TOPIC_EXCEPTION


def test_validate_only_creates_nothing(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)
    new = NewTopic(topic, num_partitions=3, replication_factor=1)
    admin.create_topics([new], validate_only=True)[topic].result(30)
    assert topic not in admin.list_topics(timeout=30).topics


def test_partitions_only_grow(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)
    confluent.create_topic(broker.bootstrap, topic, partitions=2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    eventually(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 5)
    fewer = admin.create_partitions([NewPartitions(topic, 3)])[topic]
    assert refused_with(fewer) == KafkaError.INVALID_PARTITIONS
    same = admin.create_partitions([NewPartitions(topic, 5)])[topic]
    assert refused_with(same) == KafkaError.INVALID_PARTITIONS
    missing = admin.create_partitions([NewPartitions(topic + "-none", 3)])[topic + "-none"]
    assert refused_with(missing) == KafkaError.UNKNOWN_TOPIC_OR_PART
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(2), partition=4)
    assert len(confluent.read_all(broker.bootstrap, topic, partition=4)) == 2


def test_topic_configs_are_described_and_altered(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, retention_ms="1000000")
    entries = describe(broker, ResourceType.TOPIC, topic)
    assert entries["retention.ms"].value == "1000000"
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["cleanup.policy"].value == "delete"
    assert entries["cleanup.policy"].is_default
    assert entries["max.message.bytes"].value == "1048588"

    admin = confluent.admin(broker.bootstrap)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(30)
    eventually(lambda: describe(broker, ResourceType.TOPIC, topic)["segment.bytes"].value == "1048576")
    entries = describe(broker, ResourceType.TOPIC, topic)
    assert entries["cleanup.policy"].value == "delete,compact"
    assert entries["retention.ms"].value == "604800000"
    assert entries["retention.ms"].is_default

    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("segment.bytes", "none", incremental_operation=AlterConfigOpType.SET)],
    )
    assert refused_with(admin.incremental_alter_configs([wrong])[wrong]) == KafkaError.INVALID_CONFIG


def test_configs_of_an_unknown_topic(broker: Broker, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = confluent.admin(broker.bootstrap)
    assert refused_with(admin.describe_configs([resource])[resource]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_broker_configs_are_described_and_altered(start_broker: StartBroker) -> None:
    broker = start_broker()
    admin = confluent.admin(broker.bootstrap)
    broker_id = str(admin.list_topics(timeout=30).controller_id)
    entries = describe(broker, ResourceType.BROKER, broker_id)
    assert entries["log.retention.ms"].value is None
    assert entries["message.max.bytes"].value == "1048588"
    assert entries["log.dirs"].value == str(broker.data_dir)
    assert entries["log.dirs"].is_read_only
    assert not entries["message.max.bytes"].is_read_only

    change = ConfigResource(
        ResourceType.BROKER,
        broker_id,
        incremental_configs=[ConfigEntry("message.max.bytes", "3000", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([change])[change].result(30)
    eventually(lambda: describe(broker, ResourceType.BROKER, broker_id)["message.max.bytes"].value == "3000")
    entries = describe(broker, ResourceType.BROKER, broker_id)
    assert entries["message.max.bytes"].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value

    fixed = ConfigResource(
        ResourceType.BROKER,
        broker_id,
        incremental_configs=[ConfigEntry("log.dirs", "/elsewhere", incremental_operation=AlterConfigOpType.SET)],
    )
    code = refused_with(admin.incremental_alter_configs([fixed])[fixed])
    assert code in (KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG)


def test_delete_records_moves_the_start(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(50))
    partition = TopicPartition(topic, 0, 20)
    assert admin.delete_records([partition])[partition].result(30).low_watermark == 20
    assert [m.offset() for m in confluent.read_all(broker.bootstrap, topic)] == list(range(20, 50))
    beyond = TopicPartition(topic, 0, 51)
    assert refused_with(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE
    everything = TopicPartition(topic, 0, -1)
    assert admin.delete_records([everything])[everything].result(30).low_watermark == 50
    assert confluent.read_all(broker.bootstrap, topic) == []


def test_list_offsets_of_every_kind(broker: Broker, topic: str) -> None:
    samples = plain_samples(30)
    samples.insert(10, samples.pop())  # the newest timestamp is not the last record
    confluent.send(confluent.producer(broker.bootstrap, batch_num_messages=4), topic, samples)
    admin = confluent.admin(broker.bootstrap)

    def offset(spec: Any) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        found = admin.list_offsets({partition: spec})[partition].result(30)
        return found.offset, found.timestamp

    assert offset(OffsetSpec.earliest())[0] == 0
    assert offset(OffsetSpec.latest())[0] == 30
    assert offset(OffsetSpec.max_timestamp()) == (10, BASE_TIMESTAMP_MS + 29)
    assert offset(OffsetSpec.for_timestamp(BASE_TIMESTAMP_MS + 5)) == (5, BASE_TIMESTAMP_MS + 5)
    assert offset(OffsetSpec.for_timestamp(BASE_TIMESTAMP_MS + 30))[0] == -1


def test_describe_topics_and_cluster(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)
    confluent.create_topic(broker.bootstrap, topic, partitions=3)
    cluster = admin.describe_cluster().result(30)
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", broker.port)]
    assert cluster.cluster_id == admin.list_topics(timeout=30).cluster_id
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    assert described.name == topic
    assert described.topic_id != Uuid(0, 0)
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert all(p.leader.id == cluster.nodes[0].id for p in described.partitions)
