"""Clients that write and read a topic while its cluster suffers, and keep what was acknowledged and what was read.

Each client has its own topic. A value is `partition number`; a record that the client gave up is a failure.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer

from braidlog import Consumer, Producer
from support.eventually import eventually

PARTITIONS: Final = 6
# Longer than any broker is away.
DELIVERY_S: Final = 180
# So long after the last fault everything has been acknowledged and read.
SETTLED_WITHIN_S: Final = 120.0
_PAUSE_S: Final = 0.05
_POLL_S: Final = 0.5


class Traffic(ABC):
    """Use it in a `with`; `settle` ends the writing and waits for the reading."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.sent = 0
        self.acknowledged: set[str] = set()
        self.failures: list[str] = []
        self.read: set[str] = set()
        self._writing_ends = threading.Event()
        self._reading_ends = threading.Event()
        self._writer = threading.Thread(target=self._run, args=(self._write,), name=f"{topic} writer", daemon=True)
        self._reader = threading.Thread(target=self._run, args=(self._read,), name=f"{topic} reader", daemon=True)

    @abstractmethod
    def _write(self) -> None:
        """Until `_writing_ends`, then flush."""

    @abstractmethod
    def _read(self) -> None:
        """Until `_reading_ends`, as a member of a group."""

    def _run(self, work: Any) -> None:
        try:
            work()
        except BaseException as problem:
            self.failures.append(f"{work.__name__}: {problem!r}")

    def _next(self) -> list[tuple[int, str]]:
        """A record for each partition."""
        records = [(partition, f"{partition} {self.sent}") for partition in range(PARTITIONS)]
        self.sent += 1
        return records

    def settle(self) -> None:
        self._writing_ends.set()
        self._writer.join(DELIVERY_S)
        eventually(lambda: bool(self.failures) or self.acknowledged <= self.read, SETTLED_WITHIN_S)

    def check(self) -> None:
        """Whatever was acknowledged can be read, and nothing was given up."""
        assert self.failures == []
        assert len(self.acknowledged) == self.sent * PARTITIONS > 0
        assert self.acknowledged <= self.read

    def __enter__(self) -> Traffic:
        self._writer.start()
        self._reader.start()
        # It is under way before anything happens to it.
        eventually(lambda: bool(self.failures) or len(self.read) > PARTITIONS, SETTLED_WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._writing_ends.set()
        self._reading_ends.set()
        self._writer.join(30)
        self._reader.join(30)


class ConfluentTraffic(Traffic):
    def _write(self) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.add((message.value() or b"").decode())
            else:
                self.failures.append(str(error))

        settings: dict[str, Any] = {"enable.idempotence": True, "message.timeout.ms": DELIVERY_S * 1000}
        producer = ConfluentProducer({"bootstrap.servers": self.bootstrap_servers, **settings})
        while not self._writing_ends.is_set():
            for partition, value in self._next():
                producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
            producer.poll(_PAUSE_S)
        producer.flush(DELIVERY_S)

    def _read(self) -> None:
        settings = {"group.id": self.topic, "auto.offset.reset": "earliest"}
        consumer = ConfluentConsumer({"bootstrap.servers": self.bootstrap_servers, **settings})
        consumer.subscribe([self.topic])
        while not self._reading_ends.is_set():
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self.read.add((message.value() or b"").decode())
        consumer.close()


class KafkaPythonTraffic(Traffic):
    def _write(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, delivery_timeout_ms=DELIVERY_S * 1000)
        while not self._writing_ends.wait(_PAUSE_S):
            for partition, value in self._next():
                future = producer.send(self.topic, value.encode(), partition=partition)
                future.add_callback(lambda _, value=value: self.acknowledged.add(value))
                future.add_errback(lambda problem: self.failures.append(repr(problem)))
        producer.flush(DELIVERY_S)
        producer.close()

    def _read(self) -> None:
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.topic,
            auto_offset_reset="earliest",
        )
        while not self._reading_ends.is_set():
            for records in consumer.poll(timeout_ms=int(_POLL_S * 1000)).values():
                self.read.update(record.value.decode() for record in records)
        consumer.close()


class AiokafkaTraffic(Traffic):
    def _write(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        # Its batches live as long as a request may take.
        timeout_ms = DELIVERY_S * 1000
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap_servers, enable_idempotence=True, request_timeout_ms=timeout_ms
        )
        await producer.start()

        def delivered(done: asyncio.Future[Any], value: str) -> None:
            if done.exception() is None:
                self.acknowledged.add(value)
            else:
                self.failures.append(repr(done.exception()))

        while not self._writing_ends.is_set():
            for partition, value in self._next():
                future = await producer.send(self.topic, value.encode(), partition=partition)
                future.add_done_callback(lambda done, value=value: delivered(done, value))
            await asyncio.sleep(_PAUSE_S)
        await producer.flush()
        await producer.stop()

    def _read(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic, bootstrap_servers=self.bootstrap_servers, group_id=self.topic, auto_offset_reset="earliest"
        )
        await consumer.start()
        while not self._reading_ends.is_set():
            for records in (await consumer.getmany(timeout_ms=int(_POLL_S * 1000))).values():
                self.read.update(record.value.decode() for record in records)
        await consumer.stop()


class OurTraffic(Traffic):
    def _write(self) -> None:
        def delivered(value: str) -> Any:
            def done(future: Any) -> None:
                problem = future.exception()
                if problem is None:
                    self.acknowledged.add(value)
                else:
                    self.failures.append(repr(problem))

            return done

        with Producer(bootstrap_servers=self.bootstrap_servers, delivery_timeout_ms=DELIVERY_S * 1000) as producer:
            while not self._writing_ends.wait(_PAUSE_S):
                for partition, value in self._next():
                    producer.send(self.topic, value, partition=partition).add_done_callback(delivered(value))
            producer.flush()

    def _read(self) -> None:
        with Consumer(
            self.topic, bootstrap_servers=self.bootstrap_servers, group_id=self.topic, auto_offset_reset="earliest"
        ) as consumer:
            while not self._reading_ends.is_set():
                self.read.update((record.value or b"").decode() for record in consumer.poll(_POLL_S))


PYTHON_CLIENTS: Final[Mapping[str, type[Traffic]]] = {
    "confluent-kafka": ConfluentTraffic,
    "kafka-python": KafkaPythonTraffic,
    "aiokafka": AiokafkaTraffic,
    "ours": OurTraffic,
}
