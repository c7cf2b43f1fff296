"""confluent-kafka (librdkafka): produce and consume of every kind of record, offsets, seeks, limits, errors."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from support import confluent
from support.broker import Broker, StartBroker
from support.samples import BASE_TIMESTAMP_MS, CODECS, Sample, odd_samples, plain_samples


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(broker: Broker, topic: str, codec: str) -> None:
    samples = odd_samples() + plain_samples(500)
    reports = confluent.send(confluent.producer(broker.bootstrap, compression_type=codec), topic, samples)
    assert [report.offset() for report in reports] == list(range(len(samples)))
    messages = confluent.read_all(broker.bootstrap, topic)
    assert confluent.as_samples(messages) == samples
    assert [message.offset() for message in messages] == list(range(len(samples)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(broker: Broker, topic: str, acks: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    samples = plain_samples(200)
    confluent.send(confluent.producer(broker.bootstrap, acks=acks), topic, samples)
    with confluent.assigned(broker.bootstrap, topic) as consumer:
        assert confluent.as_samples(confluent.read(consumer, len(samples))) == samples


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_idempotent_producer(broker: Broker, topic: str, codec: str) -> None:
    sender = confluent.producer(
        broker.bootstrap, enable_idempotence=True, compression_type=codec, batch_num_messages=10
    )
    samples = plain_samples(1000)
    reports = confluent.send(sender, topic, samples)
    assert [report.offset() for report in reports] == list(range(1000))
    assert confluent.as_samples(confluent.read_all(broker.bootstrap, topic)) == samples


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_records_of_one_megabyte(broker: Broker, topic: str, codec: str) -> None:
    value = bytes(range(256)) * 3900  # 998,400 B: with its headers just under max.message.bytes
    samples = [Sample(b"%d" % number, value) for number in range(5)]
    sender = confluent.producer(broker.bootstrap, compression_type=codec, message_max_bytes=1_048_588)
    confluent.send(sender, topic, samples)
    assert confluent.as_samples(confluent.read_all(broker.bootstrap, topic)) == samples


def test_a_message_over_the_limit_is_refused(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, max_message_bytes="2000")
    sender = confluent.producer(broker.bootstrap)
    with pytest.raises(KafkaException) as refused:
        confluent.send(sender, topic, [Sample(None, b"x" * 5000)])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    confluent.send(sender, topic, [Sample(None, b"small")])
    assert [m.value() for m in confluent.read_all(broker.bootstrap, topic)] == [b"small"]


@pytest.mark.parametrize("release", ["0.8.2", "0.9.0", "0.10.0"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_old_protocol_releases_read_and_write(broker: Broker, topic: str, release: str, codec: str) -> None:
    """With its version probe off, librdkafka writes message sets v0 or v1 and fetches by the oldest versions."""
    confluent.create_topic(broker.bootstrap, topic)
    old: dict[str, Any] = {"api_version_request": False, "broker_version_fallback": release}
    samples = [Sample(b"k%d" % n, b"old %d" % n * 20) for n in range(50)] + [Sample(None, b"no key")]
    confluent.send(confluent.producer(broker.bootstrap, compression_type=codec, **old), topic, samples)
    new = confluent.read_all(broker.bootstrap, topic)
    assert [(m.key(), m.value()) for m in new] == [(s.key, s.value) for s in samples]
    if release == "0.10.0":
        assert {m.timestamp() for m in new} == {(TIMESTAMP_CREATE_TIME, BASE_TIMESTAMP_MS)}
    mixed = plain_samples(40)
    confluent.send(confluent.producer(broker.bootstrap, compression_type=codec), topic, mixed)
    read_by_old = confluent.read_all(broker.bootstrap, topic, **old)
    assert [(m.key(), m.value()) for m in read_by_old] == [(s.key, s.value) for s in samples + mixed]
    assert [m.offset() for m in read_by_old] == list(range(len(samples) + len(mixed)))


def test_create_time_and_log_append_time(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(3))
    kinds, stamps = zip(*(m.timestamp() for m in confluent.read_all(broker.bootstrap, topic)), strict=True)
    assert set(kinds) == {TIMESTAMP_LOG_APPEND_TIME}
    assert all(before <= stamp <= int(time.time() * 1000) for stamp in stamps)


def test_watermarks_and_offsets_for_times(broker: Broker, topic: str) -> None:
    confluent.send(confluent.producer(broker.bootstrap, batch_num_messages=7), topic, plain_samples(100))
    with confluent.assigned(broker.bootstrap, topic) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 100)

        def at(timestamp_ms: int) -> int:
            found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=30)
            offset: int = found[0].offset
            return offset

        assert at(0) == 0
        assert at(BASE_TIMESTAMP_MS + 42) == 42
        assert at(BASE_TIMESTAMP_MS + 99) == 99
        assert at(BASE_TIMESTAMP_MS + 100) == OFFSET_END


def test_seeks_into_the_middle_of_a_batch(broker: Broker, topic: str) -> None:
    samples = plain_samples(300)
    confluent.send(confluent.producer(broker.bootstrap, linger_ms=200, compression_type="lz4"), topic, samples)
    for offset in (0, 1, 137, 299):
        with confluent.assigned(broker.bootstrap, topic, offset) as consumer:
            messages = confluent.read(consumer, min(5, 300 - offset))
            assert [m.offset() for m in messages] == list(range(offset, min(offset + 5, 300)))
    with confluent.assigned(broker.bootstrap, topic, 10) as consumer:
        assert confluent.read(consumer, 1)[0].offset() == 10
        consumer.seek(TopicPartition(topic, 0, 222))
        assert confluent.read(consumer, 1)[0].offset() == 222


def test_an_offset_out_of_range_is_told(broker: Broker, topic: str) -> None:
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(3))
    with confluent.assigned(broker.bootstrap, topic, 1000) as consumer:
        with pytest.raises(KafkaException) as out:
            confluent.read(consumer, 1)
        assert out.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_fetches_smaller_than_a_batch_still_get_on(broker: Broker, topic: str) -> None:
    samples = plain_samples(50, size=1000)
    confluent.send(confluent.producer(broker.bootstrap, linger_ms=100), topic, samples)
    tiny = {"fetch_max_bytes": 1000, "message_max_bytes": 1000, "fetch_message_max_bytes": 1}
    assert confluent.as_samples(confluent.read_all(broker.bootstrap, topic, **tiny)) == samples


def test_read_committed_sees_plain_records(broker: Broker, topic: str) -> None:
    samples = plain_samples(20)
    confluent.send(confluent.producer(broker.bootstrap), topic, samples)
    for level in ("read_committed", "read_uncommitted"):
        messages = confluent.read_all(broker.bootstrap, topic, isolation_level=level)
        assert confluent.as_samples(messages) == samples


def test_a_waiting_fetch_gets_what_arrives(broker: Broker, topic: str) -> None:
    sender = confluent.producer(broker.bootstrap)
    confluent.send(sender, topic, [Sample(None, b"before")])
    with confluent.assigned(broker.bootstrap, topic, fetch_wait_max_ms=50_000) as consumer:
        assert confluent.read(consumer, 1)[0].value() == b"before"  # the next fetch waits at the broker
        sent = time.monotonic()
        confluent.send(sender, topic, [Sample(None, b"now")])
        assert confluent.read(consumer, 1)[0].value() == b"now"
        assert time.monotonic() - sent < 45


def test_many_partitions_of_one_topic(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=1000)
    metadata = confluent.admin(broker.bootstrap).list_topics(topic, timeout=30).topics[topic]
    assert sorted(metadata.partitions) == list(range(1000))
    sender = confluent.producer(broker.bootstrap)
    for partition in range(1000):
        sender.produce(topic, value=b"%d" % partition, partition=partition)
    assert sender.flush(60) == 0
    with confluent.assigned(broker.bootstrap, topic) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(1000)])
        messages = confluent.read(consumer, 1000)
        assert {m.partition(): m.value() for m in messages} == {p: b"%d" % p for p in range(1000)}


def test_topics_are_created_on_first_use_only_if_allowed(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker({"auto.create.topics.enable": "false", "num.partitions": "3"})
    sender = confluent.producer(broker.bootstrap, message_timeout_ms=60_000, topic_metadata_propagation_max_ms=0)
    with pytest.raises(KafkaException) as unknown:
        confluent.send(sender, topic, plain_samples(1))
    assert unknown.value.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    assert topic not in confluent.admin(broker.bootstrap).list_topics(timeout=30).topics


def test_a_created_topic_has_the_default_partitions(broker: Broker, topic: str) -> None:
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(1))
    metadata = confluent.admin(broker.bootstrap).list_topics(topic, timeout=30)
    assert sorted(metadata.topics[topic].partitions) == [0]
    assert metadata.topics[topic].partitions[0].replicas == [metadata.controller_id]
    assert metadata.topics[topic].partitions[0].isrs == [metadata.controller_id]
