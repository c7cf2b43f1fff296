"""kafka-python: every codec, old message formats, offsets, limits and the admin client."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kafka import KafkaConsumer, OffsetSpec, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from support import kafka_python
from support.broker import Broker
from support.eventually import eventually
from support.samples import BASE_TIMESTAMP_MS, CODECS, Sample, odd_samples, plain_samples

# This client wants a bytes value in every header, and a key or a value in every record.
SAMPLES = [
    sample for sample in odd_samples() if (sample.key, sample.value) != (None, None)
    if all(value is not None for _, value in sample.headers)
] + plain_samples(200)  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(broker: Broker, topic: str, codec: str) -> None:
    if reason := kafka_python.missing_codec(codec):
        pytest.skip(reason)
    with kafka_python.producer(broker.bootstrap, codec) as sender:
        assert kafka_python.send(sender, topic, SAMPLES) == list(range(len(SAMPLES)))
    with kafka_python.assigned(broker.bootstrap, topic) as consumer:
        assert kafka_python.as_samples(kafka_python.read(consumer, len(SAMPLES))) == SAMPLES


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker: Broker, topic: str, acks: Any) -> None:
    samples = plain_samples(100)
    with kafka_python.producer(broker.bootstrap, acks=acks, enable_idempotence=False) as sender:
        kafka_python.send(sender, topic, samples)
    with kafka_python.assigned(broker.bootstrap, topic) as consumer:
        assert kafka_python.as_samples(kafka_python.read(consumer, 100)) == samples


def test_idempotent_producer(broker: Broker, topic: str) -> None:
    samples = plain_samples(500)
    with kafka_python.producer(broker.bootstrap, enable_idempotence=True, batch_size=1000) as sender:
        assert kafka_python.send(sender, topic, samples) == list(range(500))
    with kafka_python.assigned(broker.bootstrap, topic) as consumer:
        assert kafka_python.as_samples(kafka_python.read(consumer, 500)) == samples


@pytest.mark.parametrize("release", [(0, 8, 2), (0, 9), (0, 10), (0, 11), (1, 0), (2, 1)], ids=str)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_old_releases_of_the_protocol(broker: Broker, topic: str, release: tuple[int, ...], codec: str) -> None:
    if reason := kafka_python.missing_codec(codec):
        pytest.skip(reason)
    samples = [Sample(b"k%d" % n, b"old %d" % n * 20) for n in range(30)] + [Sample(None, b"no key")]
    with kafka_python.producer(broker.bootstrap, codec) as sender:
        kafka_python.send(sender, topic, samples)
    old = {"api_version": release}
    with kafka_python.producer(broker.bootstrap, codec, **old) as sender:
        assert kafka_python.send(sender, topic, samples) == list(range(31, 62))
    for settings in ({}, old):
        with kafka_python.assigned(broker.bootstrap, topic, **settings) as consumer:
            records = kafka_python.read(consumer, 62)
            assert [(r.offset, r.key, r.value) for r in records] == [
                (offset, s.key, s.value) for offset, s in enumerate(samples + samples)
            ]
            if release >= (0, 10):
                assert {r.timestamp for r in records} == {BASE_TIMESTAMP_MS}


def test_records_of_one_megabyte_and_one_too_large(broker: Broker, topic: str) -> None:
    value = bytes(range(256)) * 3900
    with kafka_python.producer(broker.bootstrap, max_request_size=3_000_000) as sender:
        kafka_python.send(sender, topic, [Sample(None, value), Sample(None, value)])
        with pytest.raises(errors.MessageSizeTooLargeError):
            sender.send(topic, b"x" * 1_100_000, partition=0).get(timeout=30)
    with kafka_python.assigned(broker.bootstrap, topic, max_partition_fetch_bytes=1000) as consumer:
        assert [r.value for r in kafka_python.read(consumer, 2)] == [value, value]


def test_positions_and_times(broker: Broker, topic: str) -> None:
    here = TopicPartition(topic, 0)
    with kafka_python.producer(broker.bootstrap, batch_size=600) as sender:
        kafka_python.send(sender, topic, plain_samples(100))
    with kafka_python.assigned(broker.bootstrap, topic) as consumer:
        assert consumer.beginning_offsets([here]) == {here: 0}
        assert consumer.end_offsets([here]) == {here: 100}
        found = consumer.offsets_for_times({here: BASE_TIMESTAMP_MS + 33})[here]
        assert (found.offset, found.timestamp) == (33, BASE_TIMESTAMP_MS + 33)
        assert consumer.offsets_for_times({here: BASE_TIMESTAMP_MS + 100}) == {here: None}
        for offset in (77, 3, 99):
            consumer.seek(here, offset)
            assert kafka_python.read(consumer, 1)[0].offset == offset


def test_reset_to_the_ends_and_out_of_range(broker: Broker, topic: str) -> None:
    with kafka_python.producer(broker.bootstrap) as sender:
        kafka_python.send(sender, topic, plain_samples(5))
    with kafka_python.assigned(broker.bootstrap, topic, 1000, auto_offset_reset="earliest") as consumer:
        assert kafka_python.read(consumer, 1)[0].offset == 0
    with (
        kafka_python.assigned(broker.bootstrap, topic, 1000) as consumer,
        pytest.raises(errors.OffsetOutOfRangeError),
    ):
        kafka_python.read(consumer, 1)


def test_log_append_time(broker: Broker, topic: str) -> None:
    with kafka_python.admin(broker.bootstrap) as admin:
        kafka_python.create_topic(admin, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    with kafka_python.producer(broker.bootstrap) as sender:
        kafka_python.send(sender, topic, plain_samples(3))
    with kafka_python.assigned(broker.bootstrap, topic) as consumer:
        for record in kafka_python.read(consumer, 3):
            assert record.timestamp_type == 1
            assert before <= record.timestamp <= int(time.time() * 1000)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_levels_on_plain_records(broker: Broker, topic: str, level: str) -> None:
    with kafka_python.producer(broker.bootstrap) as sender:
        kafka_python.send(sender, topic, plain_samples(9))
    with kafka_python.assigned(broker.bootstrap, topic, isolation_level=level) as consumer:
        assert len(kafka_python.read(consumer, 9)) == 9


def test_topics_and_partitions(broker: Broker, topic: str) -> None:
    with kafka_python.admin(broker.bootstrap) as admin:
        kafka_python.create_topic(admin, topic, partitions=2)
        with pytest.raises(errors.TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        with pytest.raises(errors.InvalidTopicError):
            admin.create_topics([NewTopic("bad name", num_partitions=1, replication_factor=1)])
        admin.create_partitions({topic: 4})
        eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 4)
        described = admin.describe_topic_partitions([topic])["topics"][0]
        assert [p["partition_index"] for p in described["partitions"]] == [0, 1, 2, 3]
        assert {p["leader_id"] for p in described["partitions"]} == {
            admin.describe_cluster()["brokers"][0]["broker_id"]
        }
        admin.delete_topics([topic])
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            admin.delete_topics([topic])
        eventually(lambda: topic not in admin.list_topics())


def test_topic_configs(broker: Broker, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    with kafka_python.admin(broker.bootstrap) as admin:
        kafka_python.create_topic(admin, topic)

        def modified() -> dict[str, str]:
            entries = admin.describe_configs([resource])["topic"][topic]
            return {name: entry["value"] for name, entry in entries.items()}

        assert modified() == {}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "12345"})])
        eventually(lambda: modified() == {"retention.ms": "12345"})
        wrong = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "soon"})
        assert "InvalidConfig" in str(admin.alter_configs([wrong])["topic"][topic])
        everything = admin.describe_configs([resource], include_synonyms=True, config_filter="all")["topic"]
        retention = everything[topic]["retention.ms"]
        assert retention["config_type"] == "LONG"
        assert retention["synonyms"][0]["name"] == "retention.ms"
        admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
        eventually(lambda: modified() == {})


def test_records_offsets_and_log_dirs(broker: Broker, topic: str) -> None:
    here = TopicPartition(topic, 0)
    with kafka_python.producer(broker.bootstrap) as sender:
        kafka_python.send(sender, topic, plain_samples(10))
    with kafka_python.admin(broker.bootstrap) as admin:
        newest = admin.list_partition_offsets({here: OffsetSpec.MAX_TIMESTAMP})[here]
        assert (newest.offset, newest.timestamp) == (9, BASE_TIMESTAMP_MS + 9)
        assert admin.delete_records({here: 4})[here]["low_watermark"] == 4
        assert admin.list_partition_offsets({here: OffsetSpec.EARLIEST})[here].offset == 4
        directory = admin.describe_log_dirs([topic])[0]["log_dirs"][0]
        assert directory["log_dir"] == str(broker.data_dir)
        sizes = {t["name"]: t["partitions"][0]["partition_size"] for t in directory["topics"]}
        assert sizes[topic] > 1000


def test_an_unknown_topic_is_not_made_by_asking(broker: Broker, topic: str) -> None:
    with kafka_python.admin(broker.bootstrap) as admin:
        assert admin.describe_topics([topic])[0]["error_code"] == 3
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, allow_auto_create_topics=False)
    try:
        assert not consumer.partitions_for_topic(topic)
        assert topic not in consumer.topics()
    finally:
        consumer.close()
