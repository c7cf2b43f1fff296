"""Records sent one by one: the program's own thread writes and reads, whatever other threads do beside it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from braidlog.client.errors import ClosedError
from braidlog.client.producer.delivery import Delivery, RecordMetadata
from braidlog.client.producer.producer import Producer
from support import confluent
from support.broker import Broker

PATIENCE_S = 60.0


def test_one_by_one_needs_no_other_thread(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"0", partition=0).result(PATIENCE_S)
        direct = producer._sender.direct
        sent, taken = direct.requests_sent, direct.answers_taken
        for number in range(1, 1_000):
            assert producer.send(topic, b"%d" % number, partition=0).result(PATIENCE_S).offset == number
        for number in range(1_000, 2_000):
            producer.send(topic, b"%d" % number, partition=0)
            producer.flush(PATIENCE_S)
        # Not all of them: the engine may be awake, or be faster. On a busy machine it often is.
        assert direct.requests_sent - sent > 200
        assert direct.answers_taken - taken > 200
        assert producer.metrics()["requests-sent"] == 2_000
        assert producer.metrics()["records-acknowledged"] == 2_000
    read = confluent.read_all(broker.bootstrap, topic)
    assert [message.value() for message in read] == [b"%d" % number for number in range(2_000)]


@pytest.mark.parametrize(
    "settings",
    [{"acks": 1}, {"acks": 0}, {"compression_type": "gzip"}, {"linger_ms": 3}, {"enable_idempotence": False}],
    ids=["acks=1", "acks=0", "gzip", "linger", "without idempotence"],
)
def test_one_by_one_with_other_settings(broker: Broker, topic: str, settings: dict[str, Any]) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    with Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number, partition=0).result(PATIENCE_S)
    with confluent.assigned(broker.bootstrap, topic) as consumer:
        read = confluent.read(consumer, 300)
    assert [message.value() for message in read] == [b"%d" % number for number in range(300)]


def test_threads_of_every_kind_share_a_producer(broker: Broker, topic: str) -> None:
    """Each sender's records are there once and in its own order, and each delivery names the right place."""
    confluent.create_topic(broker.bootstrap, topic, partitions=3)
    count = 1_000
    sent: dict[str, list[Delivery]] = {}

    def waits(producer: Producer, name: str, partition: int) -> None:
        for number in range(count):
            delivery = producer.send(topic, f"{name} {number}", partition=partition)
            delivery.result(PATIENCE_S)
            sent[name].append(delivery)

    def flushes(producer: Producer, name: str, partition: int) -> None:
        for number in range(count):
            sent[name].append(producer.send(topic, f"{name} {number}", partition=partition))
            if number % 3 == 0:
                producer.flush(PATIENCE_S)

    def goes_on(producer: Producer, name: str, partition: int) -> None:
        for number in range(count):
            sent[name].append(producer.send(topic, f"{name} {number}", partition=partition))
            if number % 50 == 0:
                time.sleep(0.001)

    def is_called(producer: Producer, name: str, partition: int) -> None:
        for number in range(count):
            called = threading.Event()
            sent[name].append(
                producer.send(
                    topic,
                    f"{name} {number}",
                    partition=partition,
                    on_delivery=lambda place, error, reported=called: reported.set(),  # type: ignore[misc]
                )
            )
            assert called.wait(PATIENCE_S)

    def awaits(producer: Producer, name: str, partition: int) -> None:
        async def main() -> None:
            for number in range(count):
                delivery = producer.send(topic, f"{name} {number}", partition=partition)
                await delivery
                sent[name].append(delivery)

        asyncio.run(main())

    ways: list[Callable[[Producer, str, int], None]] = [waits, flushes, goes_on, is_called, awaits, waits]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        threads = []
        for at, way in enumerate(ways):
            name = f"{way.__name__}-{at}"
            sent[name] = []
            threads.append(threading.Thread(target=way, args=(producer, name, at % 3)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        producer.flush(PATIENCE_S)
    logs = [
        [(message.value() or b"").decode() for message in confluent.read_all(broker.bootstrap, topic, partition)]
        for partition in range(3)
    ]
    assert sum(map(len, logs)) == count * len(ways)
    for at, (name, deliveries) in enumerate(sent.items()):
        assert [value for value in logs[at % 3] if value.startswith(f"{name} ")] == [
            f"{name} {number}" for number in range(count)
        ]
        for number, delivery in enumerate(deliveries):
            assert logs[at % 3][delivery.result(0).offset] == f"{name} {number}"


def test_callbacks_are_called_on_the_engines_thread_all_the_same(broker: Broker, topic: str) -> None:
    threads: list[int] = []

    def note(metadata: RecordMetadata | None, error: Exception | None) -> None:
        threads.append(threading.get_ident())

    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(200):
            producer.send(topic, b"v", partition=0).result(PATIENCE_S)
            producer.send(topic, b"v", partition=0, on_delivery=note).result(PATIENCE_S)
        engine = producer._accumulator.guard.engine_thread
    assert threads == [engine] * 200


def test_who_stops_waiting_is_told_all_the_same(broker: Broker, topic: str) -> None:
    """After many records whose answers the program read itself come some that it does not wait for."""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(20):
            for _ in range(20):
                producer.send(topic, b"v", partition=0).result(PATIENCE_S)
            reported = threading.Event()
            producer.send(topic, b"v", partition=0).add_done_callback(lambda _, reported=reported: reported.set())  # type: ignore[misc]
            assert reported.wait(PATIENCE_S)
            unwatched = producer.send(topic, b"v", partition=0)
            deadline = time.monotonic() + PATIENCE_S
            while not unwatched.done():
                assert time.monotonic() < deadline, "nobody reads the answer"
                time.sleep(0.001)


def test_closing_ends_everybody_who_waits(broker: Broker, topic: str) -> None:
    for turn in range(10):
        producer = Producer(bootstrap_servers=broker.bootstrap)
        producer.send(topic, b"v", partition=0).result(PATIENCE_S)
        ended: list[BaseException] = []
        under_way = threading.Barrier(4)

        def work(producer: Producer = producer, ended: list[BaseException] = ended, gate: Any = under_way) -> None:
            gate.wait()
            try:
                while True:
                    producer.send(topic, b"v", partition=0).result()
            except ClosedError as problem:
                ended.append(problem)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        under_way.wait()
        time.sleep(0.003 * turn)
        producer.close(0.0 if turn % 2 else None)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert len(ended) == 3
