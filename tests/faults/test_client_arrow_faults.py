"""Tables in and tables out while the broker is killed again and again.

With acks=all and idempotence every acknowledged row is there once and in order, whoever reads it as tables sees just
that, and a table whose transaction was taken back, or never ended, is seen by nobody who reads what is committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from braidlog import Consumer, Producer
from braidlog.client.arrow.reading import RangeReader
from braidlog.client.arrow.table_delivery import TableDelivery
from braidlog.client.errors import AbortableError
from braidlog.core.types import TopicPartition
from support import confluent
from support.broker import Broker, start_braidlog
from support.ports import lasting_port
from support.repetitions import some

TOPIC = "ledger"
PARTITIONS = 3
ROWS = 3_000
KILLS = 3
DEADLINE_S = 90.0
SETTINGS = {"braidlog.http.listen": ""}
QUICK = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}


class Lives:
    """A broker that comes back under its port, with its data."""

    def __init__(self, place: Path, running: ExitStack) -> None:
        self._place = place
        self._running = running
        self._port = lasting_port()
        self.broker = self._start()
        self.bootstrap = self.broker.bootstrap

    def _start(self) -> Broker:
        return self._running.enter_context(start_braidlog(self._place, SETTINGS, port=self._port))

    def kill_and_restart(self) -> None:
        self.broker.kill()
        time.sleep(0.2)
        self.broker = self._start()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    with ExitStack() as running:
        made = Lives(tmp_path / "data", running)
        confluent.create_topic(made.bootstrap, TOPIC, partitions=PARTITIONS)
        yield made


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Worker:
    """Does one thing again and again in a thread of its own, until it is told to end or fails."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.problem: BaseException | None = None
        self._work = work
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=getattr(work, "__qualname__", "worker"))
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._work()
        except BaseException as problem:
            self.problem = problem

    def end(self) -> None:
        self._ending.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "it hangs"
        if self.problem is not None:
            raise self.problem


class Writer:
    """Tables of numbered rows; the numbers of each partition rise by one from row to row."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.sent: list[TableDelivery] = []
        self._next = 0

    def write(self) -> None:
        numbers = range(self._next, self._next + ROWS // PARTITIONS)
        self._next = numbers.stop
        table = pa.table(
            {
                "value": [b"%d" % number for number in numbers for _ in range(PARTITIONS)],
                "where": pa.array(list(range(PARTITIONS)) * len(numbers), pa.int32()),
            }
        )
        self.sent.append(self.producer.send_arrow(table, TOPIC, partition_by="where", batch_size=4_096))
        time.sleep(0.02)

    def acknowledged(self) -> int:
        return sum(each.done() for each in list(self.sent))


class Reader:
    """Polls tables, and keeps what it saw by partition."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.seen: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def read(self) -> None:
        table = self.consumer.poll_arrow(0.1, columns=["partition", "offset", "value"])
        for batch in table.to_batches():
            where = batch.column("partition")[0].as_py()
            self.seen[where] += map(int, batch.column("value").to_pylist())
            self.offsets[where] += batch.column("offset").to_pylist()

    @property
    def count(self) -> int:
        return sum(map(len, self.seen))


def assigned(consumer: Consumer) -> Reader:
    consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    return Reader(consumer)


def in_range(reader: RangeReader, partition: int, end: int, start: int = 0) -> list[int]:
    batches = reader.read(TOPIC, partition, start, end, columns=["value"])
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def ends(bootstrap: str) -> list[int]:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        where = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        found = consumer.end_offsets(where)
        return [found[each] for each in where]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("codec", some(["none", "lz4"], "lz4"))
def test_tables_through_kills(lives: Lives, codec: str) -> None:
    bootstrap = lives.bootstrap
    with (
        Producer(bootstrap_servers=bootstrap, compression_type=codec, **QUICK) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **QUICK) as consumer,
        RangeReader(bootstrap_servers=bootstrap, max_partition_fetch_bytes=10_000, **QUICK) as ranges,
    ):
        writer = Writer(producer)
        reader = assigned(consumer)
        rounds: list[int] = []

        def read_a_range() -> None:
            # The last that was acknowledged when it began, one partition after the other.
            end = _in_order(writer.sent) * ROWS // PARTITIONS
            start = max(0, end - 5_000)
            assert in_range(ranges, len(rounds) % PARTITIONS, end, start) == list(range(start, end))
            rounds.append(end)

        workers = [Worker(writer.write), Worker(reader.read), Worker(read_a_range)]
        try:
            for _ in range(KILLS):
                before = writer.acknowledged(), reader.count, len(rounds)
                wait_until(lambda before=before: writer.acknowledged() > before[0] + 5)  # type: ignore[misc]
                wait_until(lambda before=before: reader.count > before[1] and len(rounds) > before[2])  # type: ignore[misc]
                lives.kill_and_restart()
            before = writer.acknowledged(), reader.count, len(rounds)
            wait_until(lambda: writer.acknowledged() > before[0] + 5 and len(rounds) > before[2])
            workers[0].end()
            outcomes = [each.result(DEADLINE_S) for each in writer.sent]
            total = sum(each.written for each in outcomes)
            assert total == ROWS * len(writer.sent)
            wait_until(lambda: reader.count >= total or workers[1].problem is not None)
        finally:
            for each in workers:
                each.end()
        assert producer.metrics()["batches-retried"] > 0
        whole = list(range(total // PARTITIONS))
        assert reader.seen == [whole] * PARTITIONS
        assert reader.offsets == [whole] * PARTITIONS, "nobody else writes, and nothing is there twice"
        for partition, end in enumerate(ends(bootstrap)):
            assert end == len(whole)
            assert in_range(ranges, partition, end) == whole
            booked = [part for each in outcomes for part in each.partitions[TopicPartition(TOPIC, partition)].ranges]
            assert booked[0][0] == 0
            assert all(after[0] == before[1] + 1 for before, after in pairwise(booked))


def _in_order(sent: list[TableDelivery]) -> int:
    """How many of the first tables are acknowledged."""
    count = 0
    for each in list(sent):
        if not each.done():
            break
        count += 1
    return count


def table_of(number: int) -> pa.Table:
    return pa.table(
        {
            "value": [b"%d" % number] * 300,
            "where": pa.array(list(range(PARTITIONS)) * (300 // PARTITIONS), pa.int32()),
        }
    )


@pytest.mark.timeout(300)
def test_tables_whose_transactions_are_taken_back_through_kills(lives: Lives) -> None:
    bootstrap = lives.bootstrap
    committed: list[int] = []
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed", **QUICK
    ) as consumer:
        reader = assigned(consumer)
        reading = Worker(reader.read)
        try:
            with Producer(bootstrap_servers=bootstrap, transactional_id="tables", **QUICK) as producer:
                producer.init_transactions()
                numbers = iter(range(1_000_000))

                def write() -> None:
                    number = next(numbers)
                    producer.begin_transaction()
                    try:
                        delivery = producer.send_arrow(table_of(number), TOPIC, partition_by="where")
                        if number % 3 == 1:
                            # Half of the time after it is written, so that there is something to take back.
                            if number % 2:
                                delivery.result(DEADLINE_S)
                            producer.abort_transaction()
                            return
                        producer.commit_transaction()
                        assert delivery.result(0).written == 300
                        committed.append(number)
                    except AbortableError:
                        producer.abort_transaction()

                writing = Worker(write)
                try:
                    for _ in range(KILLS):
                        before = len(committed)
                        wait_until(lambda before=before: len(committed) > before + 5)  # type: ignore[misc]
                        lives.kill_and_restart()
                    before = len(committed)
                    wait_until(lambda: len(committed) > before + 5)
                finally:
                    writing.end()
                # One that nobody ends: the next of its name takes it back.
                producer.begin_transaction()
                producer.send_arrow(table_of(-7), TOPIC, partition_by="where").result(DEADLINE_S)
                lives.kill_and_restart()
                with Producer(bootstrap_servers=bootstrap, transactional_id="tables", **QUICK) as heir:
                    heir.init_transactions()
            expected = [number for number in committed for _ in range(300 // PARTITIONS)]
            wait_until(lambda: reader.count >= PARTITIONS * len(expected) or reading.problem is not None)
        finally:
            reading.end()
    assert reader.seen == [expected] * PARTITIONS
    with (
        RangeReader(bootstrap_servers=bootstrap, isolation_level="read_committed", **QUICK) as ranges,
        RangeReader(bootstrap_servers=bootstrap, **QUICK) as everything,
    ):
        for partition, end in enumerate(ends(bootstrap)):
            assert in_range(ranges, partition, end) == expected
            assert -7 in in_range(everything, partition, end), "it was written, so that leaving it out shows something"
