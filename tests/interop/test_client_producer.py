"""Our producer's records, read by the other Python clients: bytes, keys, headers, timestamps, codecs, partitions."""

from __future__ import annotations

import asyncio
import threading
import time

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka.partitioner.default import murmur2 as their_murmur2

from braidlog.client.errors import ClosedError, ConcurrentUseError, DeliveryTimeoutError, RecordTooLargeError
from braidlog.client.producer.delivery import Delivery, RecordMetadata
from braidlog.client.producer.producer import Producer
from braidlog.core.protocol_errors import InvalidTopicError, MessageTooLargeError, UnknownTopicOrPartitionError
from support import confluent, kafka_python
from support.broker import Broker, StartBroker
from support.samples import CODECS, Sample, odd_samples, plain_samples


def send(producer: Producer, topic: str, samples: list[Sample], partition: int | None = 0) -> list[Delivery]:
    return [
        producer.send(
            topic, each.value, each.key, partition=partition, timestamp_ms=each.timestamp_ms, headers=each.headers
        )
        for each in samples
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_reads_what_we_sent(broker: Broker, topic: str, codec: str) -> None:
    samples = odd_samples() + plain_samples(500)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
        deliveries = send(producer, topic, samples)
        assert [delivery.result(30).offset for delivery in deliveries] == list(range(len(samples)))
    assert confluent.as_samples(confluent.read_all(broker.bootstrap, topic)) == samples


@pytest.mark.parametrize(("codec", "level"), [("gzip", 9), ("lz4", 12), ("zstd", 19)])
def test_levels_of_compression(broker: Broker, topic: str, codec: str, level: int) -> None:
    samples = plain_samples(300)
    settings = {f"compression_{codec}_level": level}
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec, **settings) as producer:
        send(producer, topic, samples)
    assert confluent.as_samples(confluent.read_all(broker.bootstrap, topic)) == samples


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_we_sent(broker: Broker, topic: str, codec: str) -> None:
    if (missing := kafka_python.missing_codec(codec)) is not None:
        pytest.skip(missing)
    samples = odd_samples() + plain_samples(200)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
        send(producer, topic, samples)
    with kafka_python.assigned(broker.bootstrap, topic) as consumer:
        assert kafka_python.as_samples(kafka_python.read(consumer, len(samples))) == samples


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_we_sent(broker: Broker, topic: str, codec: str) -> None:
    samples = odd_samples() + plain_samples(100)

    async def scenario() -> list[Sample]:
        async with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
            places = await asyncio.gather(*send(producer, topic, samples))
        assert [place.offset for place in places] == list(range(len(samples)))
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            async with asyncio.timeout(60):
                records = [await consumer.getone() for _ in samples]
            return [Sample(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        finally:
            await consumer.stop()

    assert asyncio.run(scenario()) == samples


def test_keys_go_where_other_clients_put_them(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=7)
    keys = [b"key-%d" % number for number in range(100)] + [b"", b"\xff" * 33, "ключ".encode()]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        ours = [producer.send(topic, b"ours", key=key) for key in keys]
        partitions = [delivery.result(30).partition for delivery in ours]
    with kafka_python.producer(broker.bootstrap) as sender:
        theirs = [sender.send(topic, b"theirs", key=key) for key in keys]
        assert [future.get(30).partition for future in theirs] == partitions
    # librdkafka hashes so only when it is asked to.
    reports: list[int] = []
    java_like = confluent.producer(broker.bootstrap, partitioner="murmur2")
    for key in keys:
        java_like.produce(topic, b"confluent", key=key, on_delivery=lambda _, sent: reports.append(sent.partition()))
    java_like.flush(30)
    assert sorted(reports) == sorted(partitions)
    assert partitions == [(their_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]


def test_records_without_a_key_use_every_partition(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=4)
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=1_000) as producer:
        deliveries = [producer.send(topic, bytes(100)) for _ in range(2_000)]
        used = {delivery.result(30).partition for delivery in deliveries}
    assert used == {0, 1, 2, 3}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(broker: Broker, topic: str, acks: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    samples = plain_samples(200)
    with Producer(bootstrap_servers=broker.bootstrap, acks=acks) as producer:
        deliveries = send(producer, topic, samples)
        offsets = [delivery.result(30).offset for delivery in deliveries]
    assert offsets == ([-1] * 200 if acks == "0" else list(range(200)))
    with confluent.assigned(broker.bootstrap, topic) as consumer:
        assert confluent.as_samples(confluent.read(consumer, len(samples))) == samples


def test_the_brokers_time_is_told_where_the_topic_asks_for_it(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        place = producer.send(topic, b"v", timestamp_ms=5).result(30)
    assert before - 1000 <= place.timestamp_ms <= int(time.time() * 1000) + 1000


def test_callbacks_come_in_order_and_on_another_thread(broker: Broker, topic: str) -> None:
    reported: list[tuple[int, int]] = []

    def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
        assert metadata is not None
        reported.append((metadata.offset, threading.get_ident()))

    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(1_000):
            producer.send(topic, b"%d" % number, partition=0, on_delivery=on_delivery)
        producer.flush(30)
    assert [offset for offset, _ in reported] == list(range(1_000))
    assert threading.get_ident() not in {thread for _, thread in reported}


def test_a_callback_may_send_and_may_not_wait(broker: Broker, topic: str) -> None:
    seconds: list[Delivery] = []
    refused: list[BaseException] = []
    with Producer(bootstrap_servers=broker.bootstrap) as producer:

        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            seconds.append(producer.send(topic, b"second", partition=0))
            try:
                seconds[0].result()
            except ConcurrentUseError as problem:
                refused.append(problem)

        producer.send(topic, b"first", partition=0, on_delivery=on_delivery).result(30)
        producer.flush(30)
        assert seconds[0].result(30).offset == 1
    assert len(refused) == 1


def test_many_threads_share_a_producer(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=4)
    with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=200_000, batch_size=5_000) as producer:

        def work(partition: int) -> None:
            for number in range(3_000):
                producer.send(topic, b"%d" % number, partition=partition)

        threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(60)
    for partition in range(4):
        read = confluent.read_all(broker.bootstrap, topic, partition=partition)
        assert [message.value() for message in read] == [b"%d" % number for number in range(3_000)]


def test_an_event_loop_is_never_kept(broker: Broker, topic: str) -> None:
    """Metadata that is not there, a buffer that is full: the loop goes on, and order stays."""

    async def scenario() -> float:
        longest = 0.0

        async def tick() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.001)
                longest = max(longest, time.monotonic() - before)

        ticking = asyncio.create_task(tick())
        async with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=50_000, batch_size=1_000) as producer:
            deliveries = []
            for number in range(3_000):
                deliveries.append(producer.send(topic, b"%d" % number, partition=0))
                if number % 100 == 0:
                    await asyncio.sleep(0)
            places = await asyncio.gather(*deliveries)
            assert [place.offset for place in places] == list(range(3_000))
            await producer.flush_async()
        ticking.cancel()
        return longest

    # Generous, since the machine may do other things as well: a send that waited would wait for 60 s.
    assert asyncio.run(scenario()) < 20.0
    assert len(confluent.read_all(broker.bootstrap, topic)) == 3_000


def test_a_record_over_the_limits_is_refused(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, max_message_bytes="2000")
    with Producer(bootstrap_servers=broker.bootstrap, max_request_size=100_000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send(topic, bytes(200_000))
        with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
            producer.send(topic, bytes(5_000)).result(30)
        assert producer.send(topic, b"small").result(30).offset == 0


def test_a_batch_over_the_topics_limit_is_split(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, max_message_bytes="2000")
    samples = plain_samples(300)
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=50) as producer:
        deliveries = send(producer, topic, samples)
        assert [delivery.result(30).offset for delivery in deliveries] == list(range(300))
        assert producer.metrics()["batches-split"] > 0
    assert confluent.as_samples(confluent.read_all(broker.bootstrap, topic)) == samples


def test_topics_that_cannot_be(broker: Broker, start_broker: StartBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer, pytest.raises(InvalidTopicError):
        producer.send("not a topic!", b"v")
    strict = start_broker({"auto.create.topics.enable": "false"})
    with (
        Producer(bootstrap_servers=strict.bootstrap, max_block_ms=5000) as producer,
        pytest.raises(UnknownTopicOrPartitionError, match="nowhere"),
    ):
        producer.send("nowhere", b"v")


def test_after_close_nothing_is_taken(broker: Broker, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
    deliveries = [producer.send(topic, b"%d" % number) for number in range(10)]
    producer.close()
    producer.close()
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(10))
    with pytest.raises(ClosedError, match="make a new one"):
        producer.send(topic, b"v")


def test_nobody_there(topic: str) -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=300) as producer:
        before = time.monotonic()
        with pytest.raises(Exception, match="no metadata of topic"):
            producer.send(topic, b"v")
        # By default a send waits for 60 s.
        assert time.monotonic() - before < 30.0


def test_a_notebooks_cell_may_wait(broker: Broker, topic: str) -> None:
    """Its code runs within the loop of the kernel: whatever waits there works all the same, and keeps the loop."""

    async def cell() -> None:
        with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000) as producer:
            first = producer.send(topic, b"0", partition=0)
            producer.flush(30)
            assert first.result(0).offset == 0
            assert [each.index for each in producer.partitions_for(topic)] == [0]
            second = producer.send(topic, b"1", partition=0)
            with pytest.raises(TimeoutError):
                second.result(0.01)
        assert second.result(0).offset == 1
        with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=20_000) as small:
            # Has to wait for metadata, and for room.
            rows = pa.table({"value": [bytes(5_000)] * 20})
            small.send_arrow(rows, f"{topic}-rows", batch_size=6_000).result(30)
        eager = Producer(bootstrap_servers=broker.bootstrap)
        assert eager.send(topic, b"2", partition=0).result(30).offset == 2
        eager.close()

    asyncio.run(cell())


def test_sys_exit_in_a_callback_keeps_nobody_waiting(broker: Broker, topic: str) -> None:
    def leave(metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise SystemExit

    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        deliveries = [producer.send(topic, b"v", partition=0, on_delivery=leave) for _ in range(10)]
        assert [each.result(30).offset for each in deliveries] == list(range(10))
        deliveries[0].add_done_callback(print)
        producer.flush(30)
        assert producer.send(topic, b"v", partition=0).result(30).offset == 10


def test_an_engine_that_dies_takes_everybody_who_waits_with_it(broker: Broker, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
    reported: list[Exception | None] = []
    delivery = producer.send(topic, b"v", on_delivery=lambda _, error: reported.append(error))
    producer._engine.soon(setattr, producer._engine.loop._selector, "select", None)  # type: ignore[attr-defined]
    with pytest.raises(ClosedError, match="the thread of this producer ended"):
        delivery.result(30)
    assert [type(each) for each in reported] == [ClosedError]
    with pytest.raises(ClosedError):
        producer.send(topic, b"v")
    with pytest.raises(ClosedError):
        producer.flush()
    producer.close()


def test_a_callback_that_hangs_does_not_keep_those_who_wait_for_ever(broker: Broker, topic: str) -> None:
    release = threading.Event()
    settings = {"delivery_timeout_ms": 500, "request_timeout_ms": 400, "linger_ms": 0}
    with Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        hanging = threading.Event()

        def hang(metadata: RecordMetadata | None, error: Exception | None) -> None:
            hanging.set()
            release.wait(60)

        producer.send(topic, b"v", on_delivery=hang)
        assert hanging.wait(30)
        try:
            with pytest.raises(DeliveryTimeoutError, match="does a delivery callback keep it"):
                producer.send(topic, b"v").result()
        finally:
            release.set()


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_the_thread_of_a_forgotten_producer_ends_after_its_records(broker: Broker, topic: str, linger_ms: int) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=linger_ms)
    thread = producer._engine._thread
    deliveries = [producer.send(topic, b"v", partition=0) for _ in range(100)]
    del producer
    assert [each.result(30).offset for each in deliveries] == list(range(100))
    thread.join(30)
    assert not thread.is_alive()
