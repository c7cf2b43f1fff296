"""Our consumer reads what the other Python clients wrote: bytes, headers, timestamps, codecs, transactions, offsets."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from aiokafka import AIOKafkaProducer

from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import (
    ClosedError,
    ConcurrentUseError,
    NoOffsetError,
    PoisonRecordError,
    SettingError,
    WakeupError,
)
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from support import confluent, kafka_python
from support.broker import Broker
from support.eventually import eventually
from support.samples import BASE_TIMESTAMP_MS, CODECS, Sample, odd_samples, plain_samples

DEADLINE_S = 60.0
# kafka-python and aiokafka send no record that has neither key nor value.
SENDABLE = [each for each in odd_samples() if (each.key, each.value) != (None, None)] + plain_samples(300)


@contextlib.contextmanager
def reading(broker: Broker, *partitions: TopicPartition, **settings: Any) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=broker.bootstrap, **{"auto_offset_reset": "earliest", **settings}) as consumer:
        consumer.assign(partitions)
        yield consumer


def read(consumer: Consumer, count: int, **options: Any) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < count:
        records += consumer.poll(1.0, **options)
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
    return records


def as_samples(records: list[ConsumerRecord]) -> list[Sample]:
    return [Sample(each.key, each.value, each.headers, each.timestamp) for each in records]


def produce(broker: Broker, topic: str, samples: list[Sample], partition: int = 0, **settings: Any) -> None:
    confluent.send(confluent.producer(broker.bootstrap, **settings), topic, samples, partition)


# What the others wrote


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_confluent(broker: Broker, topic: str, codec: str) -> None:
    samples = odd_samples() + plain_samples(700)
    produce(broker, topic, samples, compression_type=codec)
    with reading(broker, TopicPartition(topic, 0)) as consumer:
        records = read(consumer, len(samples))
    assert as_samples(records) == samples
    assert [each.offset for each in records] == list(range(len(samples)))
    assert {(each.topic, each.partition, each.timestamp_type) for each in records} == {(topic, 0, 0)}


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_kafka_python(broker: Broker, topic: str, codec: str) -> None:
    missing = kafka_python.missing_codec(codec)
    if missing:
        pytest.skip(missing)
    samples = [replace(each, headers=tuple(one for one in each.headers if one[1] is not None)) for each in SENDABLE]
    with kafka_python.producer(broker.bootstrap, codec) as sender:
        kafka_python.send(sender, topic, samples)
    with reading(broker, TopicPartition(topic, 0)) as consumer:
        assert as_samples(read(consumer, len(samples))) == samples


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_aiokafka(broker: Broker, topic: str, codec: str) -> None:
    samples = SENDABLE

    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
        )
        await producer.start()
        try:
            for each in samples:
                await producer.send(
                    topic,
                    each.value,
                    each.key,
                    partition=0,
                    timestamp_ms=each.timestamp_ms,
                    headers=list(each.headers),
                )
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(send(), DEADLINE_S))
    with reading(broker, TopicPartition(topic, 0)) as consumer:
        assert as_samples(read(consumer, len(samples))) == samples


def test_transactions_committed_and_aborted(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    sender = confluent.producer(broker.bootstrap, transactional_id=topic)
    sender.init_transactions(DEADLINE_S)
    for number in range(6):
        sender.begin_transaction()
        for at in range(5):
            sender.produce(topic, b"%d-%d" % (number, at), partition=0)
        sender.flush(DEADLINE_S)
        if number % 2:
            sender.abort_transaction(DEADLINE_S)
        else:
            sender.commit_transaction(DEADLINE_S)
    committed = [b"%d-%d" % (number, at) for number in (0, 2, 4) for at in range(5)]
    where = TopicPartition(topic, 0)
    with reading(broker, where, isolation_level="read_committed") as consumer:
        assert [each.value for each in read(consumer, 15)] == committed
        # Three times five records and the markers of six transactions lie between.
        eventually(lambda: consumer.poll(0.1) == [] and consumer.position(where) == 36)
        assert consumer.lag(where) == 0
    with reading(broker, where) as consumer:
        assert len(read(consumer, 30)) == 30


def test_an_open_transaction_hides_what_follows(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    sender = confluent.producer(broker.bootstrap, transactional_id=topic)
    sender.init_transactions(DEADLINE_S)
    produce(broker, topic, [Sample(None, b"before")])
    sender.begin_transaction()
    sender.produce(topic, b"within", partition=0)
    sender.flush(DEADLINE_S)
    produce(broker, topic, [Sample(None, b"after")])
    where = TopicPartition(topic, 0)
    with reading(broker, where, isolation_level="read_committed") as consumer:
        assert [each.value for each in read(consumer, 1)] == [b"before"]
        assert consumer.poll(0.7) == []
        assert consumer.end_offsets([where]) == {where: 1}
        sender.commit_transaction(DEADLINE_S)
        assert [each.value for each in read(consumer, 2)] == [b"within", b"after"]


# How it reads


def test_polls_iteration_and_single_records_share_one_stream(broker: Broker, topic: str) -> None:
    produce(broker, topic, plain_samples(50))
    where = TopicPartition(topic, 0)
    with reading(broker, where) as consumer:
        seen = [each.offset for each in read(consumer, 3, max_records=3)]
        assert consumer.position(where) == 3
        for record in consumer:
            seen.append(record.offset)
            assert consumer.position(where) == record.offset + 1
            if len(seen) == 10:
                break
        for _ in range(5):
            one = consumer.poll_one(5.0)
            assert one is not None
            seen.append(one.offset)
        assert consumer.position(where) == 15
        seen += [each.offset for each in read(consumer, 35)]
        assert seen == list(range(50))
        assert consumer.poll_one(0.0) is None
        assert consumer.metrics()["records-consumed-total"] == 50


def test_large_fetches_in_small_and_large_steps(broker: Broker, topic: str) -> None:
    samples = plain_samples(3000, size=1000)
    produce(broker, topic, samples)
    for settings in ({}, {"max_partition_fetch_bytes": 20_000}, {"fetch_max_bytes": 5_000}, {"max_poll_records": 7}):
        with reading(broker, TopicPartition(topic, 0), **settings) as consumer:
            assert as_samples(read(consumer, len(samples))) == samples


def test_a_record_larger_than_the_limits_is_read_all_the_same(broker: Broker, topic: str) -> None:
    produce(broker, topic, [Sample(None, b"x" * 500_000), Sample(None, b"y")])
    with reading(broker, TopicPartition(topic, 0), max_partition_fetch_bytes=100, fetch_max_bytes=100) as consumer:
        assert [len(each.value) for each in read(consumer, 2)] == [500_000, 1]


def test_many_partitions(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=20)
    for partition in range(20):
        produce(broker, topic, plain_samples(partition * 5), partition)
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, each.index) for each in consumer.partitions_for(topic)])
        records = read(consumer, sum(range(20)) * 5)
        for partition in range(20):
            mine = [each.offset for each in records if each.partition == partition]
            assert mine == list(range(partition * 5))


def test_seeks(broker: Broker, topic: str) -> None:
    produce(broker, topic, plain_samples(30))
    where = TopicPartition(topic, 0)
    with reading(broker, where) as consumer:
        assert read(consumer, 1)[0].offset == 0
        consumer.seek(where, 17)
        assert read(consumer, 1)[0].offset == 17
        consumer.seek_to_beginning()
        assert consumer.position(where) == 0
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end([where])
        assert consumer.position(where) == 30
        assert consumer.poll(0.2) == []
        produce(broker, topic, [Sample(None, b"new")])
        assert [each.value for each in read(consumer, 1)] == [b"new"]
        consumer.seek(where, OffsetAndMetadata(5))
        assert read(consumer, 1)[0].offset == 5
        with pytest.raises(UserError, match="does not exist"):
            consumer.seek(where, -1)
        with pytest.raises(UserError, match="not assigned"):
            consumer.seek(TopicPartition(topic, 9), 0)


def test_pauses_hold_one_partition_back(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=2)
    held, free = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for each in (held, free):
        produce(broker, topic, plain_samples(40), each.partition)
    with reading(broker, held, free, max_poll_records=5) as consumer:
        first = read(consumer, 1)
        seen = len([each for each in first if each.partition == 0])
        consumer.pause([held])
        assert consumer.paused() == {held}
        others = read(consumer, 40 - len([each for each in first if each.partition == 1]))
        assert {each.partition for each in others} == {1}
        assert consumer.poll(0.2) == []
        consumer.resume([held])
        assert [each.offset for each in read(consumer, 40 - seen)] == list(range(seen, 40))


def test_offsets_of_the_log(broker: Broker, topic: str) -> None:
    samples = [Sample(None, b"x", timestamp_ms=BASE_TIMESTAMP_MS + 1000 * at) for at in range(10)]
    produce(broker, topic, samples)
    where = TopicPartition(topic, 0)
    with reading(broker, where) as consumer:
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 10}
        found = consumer.offsets_for_times({where: BASE_TIMESTAMP_MS + 2500})[where]
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (3, BASE_TIMESTAMP_MS + 3000)
        assert consumer.offsets_for_times({where: BASE_TIMESTAMP_MS + 60_000}) == {where: None}
        assert consumer.lag(where) == 10
        read(consumer, 4, max_records=4)
        assert consumer.lag(where) == 6
        assert topic in consumer.list_topics()
        with pytest.raises(UserError, match="1970"):
            consumer.offsets_for_times({where: -5})


def test_starts_by_policy(broker: Broker, topic: str) -> None:
    old = [Sample(None, b"old", timestamp_ms=BASE_TIMESTAMP_MS)] * 3
    produce(broker, topic, [*old, Sample(None, b"new", timestamp_ms=int(time.time() * 1000))])
    where = TopicPartition(topic, 0)
    with reading(broker, where, auto_offset_reset="latest") as consumer:
        assert consumer.position(where) == 4
    with reading(broker, where, auto_offset_reset="by_duration:PT30M") as consumer:
        assert [each.value for each in read(consumer, 1)] == [b"new"]
    with reading(broker, where, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetError, match=r"auto\.offset\.reset is none"):
            consumer.poll(10.0)
        consumer.seek(where, 100)
        with pytest.raises(NoOffsetError, match="does not have offset 100"):
            consumer.poll(10.0)
        consumer.seek(where, 3)
        assert [each.value for each in read(consumer, 1)] == [b"new"]
    with reading(broker, where) as consumer:
        consumer.seek(where, 100)
        assert [each.offset for each in read(consumer, 4)] == [0, 1, 2, 3]


def test_a_topic_that_comes_later(broker: Broker, topic: str) -> None:
    where = TopicPartition(topic, 0)
    with reading(broker, where, allow_auto_create_topics=False) as consumer:
        assert consumer.poll(0.3) == []
        confluent.create_topic(broker.bootstrap, topic)
        produce(broker, topic, [Sample(None, b"x")])
        assert [each.value for each in read(consumer, 1)] == [b"x"]


def test_deserializers_and_what_they_cannot_read(broker: Broker, topic: str) -> None:
    produce(broker, topic, [Sample(b"a", b"1"), Sample(None, b"[2]"), Sample(b"c", b"{"), Sample(b"d", None)])
    where = TopicPartition(topic, 0)
    with reading(broker, where, key_deserializer="str", value_deserializer="json") as consumer:
        assert [(each.key, each.value) for each in read(consumer, 2)] == [("a", 1), (None, [2])]
        for _ in range(2):
            with pytest.raises(PoisonRecordError, match=rf"{topic}-0 at offset 2.*seek") as caught:
                consumer.poll(5.0)
            assert consumer.position(where) == 2
        consumer.seek(where, caught.value.resume_at)
        assert [(each.key, each.value) for each in read(consumer, 1)] == [("d", None)]


def test_interceptors_see_records_first(broker: Broker, topic: str) -> None:
    class OnlyEven:
        seen: ClassVar[list[int]] = []

        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            self.seen.extend(each.offset for each in records)
            return [each for each in records if each.offset % 2 == 0]

    produce(broker, topic, plain_samples(10))
    where = TopicPartition(topic, 0)
    with reading(broker, where, interceptor_classes=[OnlyEven()]) as consumer:
        # However they are taken: each is seen once.
        assert [each.offset for each in read(consumer, 1, max_records=1)] == [0]
        one = consumer.poll_one(DEADLINE_S)
        assert one is not None
        assert one.offset == 2
        assert next(iter(consumer)).offset == 4
        assert [each.offset for each in read(consumer, 2)] == [6, 8]
        assert OnlyEven.seen == list(range(10))
        consumer.seek_to_beginning()
        assert [each.offset for each in read(consumer, 5)] == [0, 2, 4, 6, 8]
        consumer.seek_to_beginning()
        iterator = iter(consumer)
        assert [next(iterator).offset for _ in range(5)] == [0, 2, 4, 6, 8]


# Who may call what


def test_a_wakeup_ends_a_wait(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    where = TopicPartition(topic, 0)
    with reading(broker, where) as consumer:
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(DEADLINE_S)
        timer.join()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll()
        produce(broker, topic, [Sample(None, b"x")])
        assert len(read(consumer, 1)) == 1


def test_two_threads_at_once_are_refused(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    where = TopicPartition(topic, 0)
    with reading(broker, where) as consumer:
        started = threading.Event()
        outcome: list[object] = []

        def wait() -> None:
            started.set()
            try:
                outcome.append(consumer.poll(DEADLINE_S))
            except WakeupError as problem:
                outcome.append(problem)

        other = threading.Thread(target=wait)
        other.start()
        started.wait()

        def refused() -> bool:
            try:
                consumer.position(where)
            except ConcurrentUseError:
                return True
            return False

        eventually(refused)
        consumer.wakeup()
        other.join()
        assert isinstance(outcome[0], WakeupError)
        assert consumer.position(where) == 0


def test_misuse_is_told(broker: Broker) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        with pytest.raises(UserError, match="nothing to read"):
            consumer.poll()
        with pytest.raises(UserError, match="group_id"):
            consumer.commit()
        with pytest.raises(UserError, match="group_id"):
            consumer.group_metadata()
        with pytest.raises(UserError, match="no topic"):
            consumer.subscribe(["t", " "])
        with pytest.raises(UserError, match="no topic"):
            consumer.subscribe([None])  # type: ignore[list-item]
        with pytest.raises(UserError, match="no partition"):
            consumer.assign([("t", -1)])
        consumer.subscribe([])
        consumer.assign([])
        assert consumer.assignment() == frozenset()
    with pytest.raises(ClosedError):
        consumer.poll()
    consumer.close()


def test_a_closed_consumer_ends_its_iteration(broker: Broker, topic: str) -> None:
    produce(broker, topic, plain_samples(3))
    seen = 0
    with reading(broker, TopicPartition(topic, 0)) as consumer:
        for _ in consumer:
            seen += 1
            if seen == 3:
                consumer.close()
    assert seen == 3


def test_a_failed_construction_leaves_no_thread() -> None:
    before = threading.active_count()
    for settings in ({"auto_offset_reset": "soon"}, {"bootstrap_servers": ""}, {"value_deserializer": "smoke"}):
        with pytest.raises(SettingError):
            Consumer(**{"bootstrap_servers": "127.0.0.1:1", **settings})
    assert threading.active_count() == before


def test_without_a_broker_polls_are_empty(topic: str) -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1", auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.poll(0.3) == []


# With a group (the group's own tests are elsewhere)


def test_a_group_goes_on_where_it_was(broker: Broker, topic: str) -> None:
    produce(broker, topic, plain_samples(20))
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(**settings, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, 8, max_records=8)[-1].offset == 7
        consumer.commit()
    with Consumer(**settings) as consumer:
        consumer.subscribe(f"^{topic}$")
        assert read(consumer, 1)[0].offset == 8
        assert consumer.subscription() == {topic}
        assert consumer.assignment() == {TopicPartition(topic, 0)}
    where = TopicPartition(topic, 0)
    with reading(broker, where, group_id=topic) as consumer:
        # What the second one read was committed when it closed.
        assert consumer.committed([where]) == {where: OffsetAndMetadata(20, "", 0)}
        assert consumer.position(where) == 20


def test_closing_commits_what_was_read_of_partitions_that_nobody_shares(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(10))
    where = TopicPartition(topic, 0)
    given = {"bootstrap_servers": broker.bootstrap, "group_id": f"{topic}-readers", "auto_offset_reset": "earliest"}
    with Consumer(auto_commit_interval_ms=600_000, **given) as consumer:
        consumer.assign([where])
        read = 0
        while read < 4:
            read += len(consumer.poll(5.0, max_records=4 - read))
    with Consumer(**given) as consumer:
        committed = consumer.committed([where])[where]
        assert committed is not None
        assert committed.offset == 4
