"""Numbered records: what a test writes through faults, and the books that say whether all of it is still there.

Every partition has its own count: the value of its n-th record is n. A writer notes which numbers the broker has
acknowledged; a reading of the partition then proves order, single delivery, and that no acknowledged number is missing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

DEADLINE_S = 60.0
COMPACTED_KEYS = 7
# An upper bound: a few questions at the start, then a fetch for each megabyte.
REQUESTS_OF_A_CHECK = 50


@dataclass
class PartitionLedger:
    """What was written to one partition; numbers are acknowledged in any order, but counted from 0."""

    topic: str
    partition: int
    compacted: bool = False
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def check(self, read: Sequence[tuple[int, int]]) -> None:
        """`read` is all of the partition as (offset, number)."""
        for (before_at, before), (after_at, after) in pairwise(read):
            assert before_at < after_at, f"{self}: offset {after_at} follows {before_at}"
            assert before != after, f"{self}: {after} is there twice, at offsets {before_at} and {after_at}"
            assert before < after, f"{self}: {after} at offset {after_at} follows {before}"
        there = {number for _, number in read}
        assert not read or read[-1][1] < self.sent, f"{self}: {read[-1][1]} was never sent"
        if self.compacted:
            self._check_newest(there)
            return
        missing = sorted(self.acknowledged - there)
        assert not missing, f"{self}: {len(missing)} acknowledged records are lost, the first of them {missing[:5]}"

    def _check_newest(self, there: set[int]) -> None:
        """Of a compacted partition only the newest record of each key must be there."""
        for key in range(COMPACTED_KEYS):
            acknowledged = [number for number in self.acknowledged if number % COMPACTED_KEYS == key]
            if acknowledged:
                newest = max((number for number in there if number % COMPACTED_KEYS == key), default=-1)
                assert newest >= max(acknowledged), f"{self}: key {key} ends at {newest}, not {max(acknowledged)}"


class NumberedWriter:
    """An idempotent producer with acks=all that goes on through crashes; `failures` must stay empty."""

    def __init__(self, bootstrap: str, partitions: Mapping[str, int], compacted: Sequence[str] = (), **settings: Any):
        self.books = [
            PartitionLedger(topic, index, topic in compacted)
            for topic, count in partitions.items()
            for index in range(count)
        ]
        self.failures: list[str] = []
        self._own_requests = [0]
        self._checks = 0
        failures, requests = self.failures, self._own_requests

        # No methods: the producer would keep this object, and so itself, alive and knocking at its broker's port.
        def on_error(error: KafkaError) -> None:
            if error.fatal():
                failures.append(f"fatal: {error}")

        def on_statistics(text: str) -> None:
            requests[0] = sum(broker["tx"] for broker in json.loads(text)["brokers"].values())

        self._padding = b"." * 40
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                # Smaller than the segments, however much has gathered while the broker was away.
                "batch.size": 2048,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "error_cb": on_error,
                "stats_cb": on_statistics,
                "statistics.interval.ms": 500,
                "log_level": 2,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

    @property
    def requests(self) -> int:
        """Requests that this writer and its checks have sent, up to half a second ago."""
        return self._own_requests[0] + self._checks * REQUESTS_OF_A_CHECK

    @property
    def acknowledged(self) -> int:
        return sum(len(books.acknowledged) for books in self.books)

    def send(self, count: int, most_waiting: int | None = None) -> None:
        """`count` more records to every partition where fewer than `most_waiting` wait; their answers come later."""
        for books in self.books:
            if most_waiting is not None and books.sent - len(books.acknowledged) >= most_waiting:
                continue
            for number in range(books.sent, books.sent + count):
                self._producer.produce(
                    books.topic,
                    key=b"key-%d" % (number % COMPACTED_KEYS),
                    value=b"%d %s" % (number, self._padding),
                    partition=books.partition,
                    on_delivery=_noting(books, number, self.failures),
                )
            books.sent += count
        self._producer.poll(0)

    def learn(self, topic: str) -> None:
        """Ask about a topic that was created, or has grown, since the writer last asked."""
        self._producer.list_topics(topic, DEADLINE_S)

    def polled(self) -> bool:
        """Take the answers that came; always true, to be asked among other conditions."""
        self._producer.poll(0.01)
        return True

    def flush(self, seconds: float = DEADLINE_S) -> None:
        left = self._producer.flush(seconds)
        assert left == 0, f"{left} records were neither acknowledged nor refused"

    @contextmanager
    def running(self, at_once: int = 3, most_waiting: int = 100, every_s: float = 0.01) -> Iterator[None]:
        """Writes in the background, a few records to every partition at a time, until the block ends.

        A partition that cannot be written does not keep the others waiting. With the default pace a minute of faults
        stays readable in a second.
        """
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                self.send(at_once, most_waiting)
                stop.wait(every_s)

        thread = threading.Thread(target=write, name="numbered writer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(DEADLINE_S)

    def check(self, bootstrap: str) -> int:
        """Read everything back, hold it against the books; how many records there were."""
        assert not self.failures, self.failures[:5]
        # What is acknowledged by now must be found by the reading that begins now.
        books = [PartitionLedger(b.topic, b.partition, b.compacted, b.sent, set(b.acknowledged)) for b in self.books]
        self._checks += 1
        found = read_numbers(bootstrap, [(b.topic, b.partition) for b in books])
        for book, live in zip(books, self.books, strict=True):
            book.sent = live.sent  # more may have been sent, and found, meanwhile
            book.check(found[book.topic, book.partition])
        return sum(map(len, found.values()))


def _noting(books: PartitionLedger, number: int, failures: list[str]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            books.acknowledged.add(number)
        else:
            failures.append(f"{books}: record {number} failed: {error}")

    return delivered


def read_numbers(
    bootstrap: str, partitions: Sequence[tuple[str, int]], start: int = 0, **settings: Any
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """All of the partitions from the offset `start` on, each as (offset, number)."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {key: [] for key in partitions}
    # From an absolute offset: asking for the beginning costs librdkafka half a second of waiting.
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            # The end of a partition is told by an empty fetch: it need not wait for more.
            "fetch.wait.max.ms": 10,
            "reconnect.backoff.ms": 10,
            "fetch.error.backoff.ms": 20,
            "log_level": 2,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, start) for topic, index in partitions])
        unfinished = set(partitions)
        deadline = time.monotonic() + DEADLINE_S
        while unfinished:
            assert time.monotonic() < deadline, f"{sorted(unfinished)} did not end within {DEADLINE_S:.0f} s"
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                key = (str(message.topic()), int(message.partition() or 0))
                if error is None:
                    found[key].append((int(message.offset() or 0), int((message.value() or b"").split()[0])))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(key)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found
