"""Our producer while brokers die, stand still, lose answers and topics come again.

With acks=all and idempotence every acknowledged record is there once, in order.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from braidlog.client.errors import BufferFullError, ClosedError, DeliveryTimeoutError
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.producer import Producer
from support import confluent
from support.broker import Broker, start_braidlog
from support.cutting_proxy import CuttingProxy
from support.ports import lasting_port
from support.repetitions import some

TOPIC = "ledger"
PARTITIONS = 3
SETTINGS = {"braidlog.http.listen": ""}


class Writer:
    """Numbers records per partition until it is stopped, in a thread of its own."""

    def __init__(self, producer: Producer, pause_s: float = 0.0002, *, one_by_one: bool = False) -> None:
        self.producer = producer
        self.sent: list[list[Delivery]] = [[] for _ in range(PARTITIONS)]
        self.problems: list[Exception] = []
        self._pause_s = pause_s
        # Waits for each record: its own thread writes and reads in the engine's place.
        self._one_by_one = one_by_one
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="writer")
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            for partition, row in enumerate(self.sent):
                try:
                    row.append(self.producer.send(TOPIC, b"%d" % len(row), partition=partition))
                except BufferFullError as problem:
                    self.problems.append(problem)
                if self._one_by_one:
                    row[-1].result(60)
            time.sleep(self._pause_s)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def acknowledged(self) -> int:
        return sum(delivery.done() for row in self.sent for delivery in row)


def check_books(bootstrap: str, sent: list[list[Delivery]]) -> int:
    """Every acknowledged record at its offset, nothing twice, everything in order; how many were acknowledged."""
    count = 0
    for partition, row in enumerate(sent):
        read = [int(message.value() or b"") for message in confluent.read_all(bootstrap, TOPIC, partition)]
        assert len(set(read)) == len(read), "a record is there twice"
        assert read == sorted(read), "records are out of order"
        for number, delivery in enumerate(row):
            assert delivery.done()
            if delivery.exception(0) is None:
                count += 1
                assert read[delivery.result(0).offset] == number
    return count


def wait_until(condition: object, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[list[Broker]]:
    """A broker on a port that it keeps; `restart` brings it back."""
    with ExitStack() as running:
        port = lasting_port()
        brokers: list[Broker] = []

        def start() -> Broker:
            broker = running.enter_context(start_braidlog(tmp_path / "data", SETTINGS, port=port))
            brokers.append(broker)
            return broker

        brokers.append(start())
        brokers[0].__dict__["again"] = start
        yield brokers


def restart(lives: list[Broker]) -> None:
    lives[0].__dict__["again"]()


@pytest.mark.parametrize("codec", some(["none", "lz4"], "lz4"))
def test_a_broker_killed_again_and_again(lives: list[Broker], codec: str) -> None:
    bootstrap = lives[0].bootstrap
    confluent.create_topic(bootstrap, TOPIC, partitions=PARTITIONS)
    with Producer(bootstrap_servers=bootstrap, compression_type=codec, retry_backoff_ms=20) as producer:
        writer = Writer(producer)
        for _ in range(3):
            before = writer.acknowledged
            wait_until(lambda before=before: writer.acknowledged > before + 500)
            lives[-1].kill()
            time.sleep(0.2)
            restart(lives)
        before = writer.acknowledged
        wait_until(lambda: writer.acknowledged > before + 500)
        writer.stop()
        producer.flush(60)
        total = sum(map(len, writer.sent))
        assert check_books(bootstrap, writer.sent) == total
        assert producer.metrics()["batches-retried"] > 0


@pytest.mark.parametrize(
    ("seed", "one_by_one"),
    [
        (1, False),
        pytest.param(2, False, marks=pytest.mark.long),
        (3, True),
        pytest.param(4, True, marks=pytest.mark.long),
    ],
)
def test_connections_cut_in_the_middle_of_requests(tmp_path: Path, seed: int, one_by_one: bool) -> None:
    with (
        CuttingProxy() as proxy,
        start_braidlog(tmp_path / "data", {**SETTINGS, **proxy.settings()}, port=proxy.broker_port),
    ):
        confluent.create_topic(proxy.bootstrap, TOPIC, partitions=PARTITIONS)
        with Producer(
            bootstrap_servers=proxy.bootstrap, retry_backoff_ms=5, reconnect_backoff_ms=5, reconnect_backoff_max_ms=50
        ) as producer:
            writer = Writer(producer, one_by_one=one_by_one)
            wait_until(lambda: writer.acknowledged > 100)
            end = proxy.misbehave(seed)
            cuts = proxy.cuts
            wait_until(lambda: proxy.cuts > cuts + 40)
            end()
            writer.stop()
            producer.flush(60)
            assert producer.metrics()["batches-retried"] > 0
            assert check_books(proxy.bootstrap, writer.sent) == sum(map(len, writer.sent))


def test_a_broker_that_stands_still_longer_than_the_request_timeout(lives: list[Broker]) -> None:
    bootstrap = lives[0].bootstrap
    confluent.create_topic(bootstrap, TOPIC, partitions=PARTITIONS)
    with Producer(
        bootstrap_servers=bootstrap, request_timeout_ms=500, delivery_timeout_ms=60_000, retry_backoff_ms=50
    ) as producer:
        writer = Writer(producer)
        wait_until(lambda: writer.acknowledged > 300)
        lives[0].process.signal(signal.SIGSTOP)
        time.sleep(1.5)
        lives[0].process.signal(signal.SIGCONT)
        before = writer.acknowledged
        wait_until(lambda: writer.acknowledged > before + 500)
        writer.stop()
        producer.flush(60)
        assert check_books(bootstrap, writer.sent) == sum(map(len, writer.sent))
        assert producer.metrics()["batches-retried"] > 0


def test_what_is_not_acknowledged_in_time_says_why(lives: list[Broker]) -> None:
    bootstrap = lives[0].bootstrap
    with Producer(
        bootstrap_servers=bootstrap, request_timeout_ms=1000, delivery_timeout_ms=5000, linger_ms=0
    ) as producer:
        producer.send(TOPIC, b"first", partition=0).result(30)
        lives[0].kill()
        late = producer.send(TOPIC, b"late", partition=0)
        with pytest.raises(DeliveryTimeoutError, match=r"ledger-0 .*delivery\.timeout\.ms \(5 s\).*last problem"):
            late.result(30)


def test_a_full_buffer_is_told_after_max_block_and_empties_again(lives: list[Broker]) -> None:
    bootstrap = lives[0].bootstrap
    # It bounds the wait for the topic's metadata, too, which a busy machine does not have in 200 ms.
    with Producer(bootstrap_servers=bootstrap, buffer_memory=40_000, batch_size=20_000, max_block_ms=3_000) as producer:
        producer.send(TOPIC, b"first", partition=0).result(30)
        lives[0].process.signal(signal.SIGSTOP)
        taken: list[Delivery] = []
        try:
            with pytest.raises(BufferFullError, match=r"buffer\.memory \(40000 bytes\) is full"):
                taken.extend(producer.send(TOPIC, bytes(5_000), partition=0) for _ in range(100))
        finally:
            lives[0].process.signal(signal.SIGCONT)
        producer.flush(60)
        assert producer.metrics()["buffer-available-bytes"] == 40_000
    assert len(confluent.read_all(bootstrap, TOPIC)) == len(taken) + 1


def test_a_topic_deleted_and_made_again(lives: list[Broker]) -> None:
    bootstrap = lives[0].bootstrap
    confluent.create_topic(bootstrap, TOPIC, partitions=PARTITIONS)
    with Producer(bootstrap_servers=bootstrap, retry_backoff_ms=20) as producer:
        old = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(100)]
        producer.flush(30)
        admin = confluent.admin(bootstrap)
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        confluent.create_topic(bootstrap, TOPIC, partitions=PARTITIONS)
        new = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(100)]
        producer.flush(60)
        assert [delivery.result(0).offset for delivery in old] == list(range(100))
        assert check_books(bootstrap, [new]) == 100


def test_close_sends_what_it_can_and_fails_the_rest(lives: list[Broker]) -> None:
    bootstrap = lives[0].bootstrap
    producer = Producer(bootstrap_servers=bootstrap)
    producer.send(TOPIC, b"first", partition=0).result(30)
    lives[0].process.signal(signal.SIGSTOP)
    left = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(10)]
    before = time.monotonic()
    try:
        producer.close(0.5)
        # A request has 30 s by default, a record 120 s.
        assert 0.4 < time.monotonic() - before < 25.0
    finally:
        lives[0].process.signal(signal.SIGCONT)
    for delivery in left:
        with pytest.raises(ClosedError, match="closed before this record was acknowledged"):
            delivery.result(0)


def test_a_child_cannot_use_its_parents_producer(lives: list[Broker]) -> None:
    program = f"""
import os
from braidlog.client.errors import ClosedError
from braidlog.client.producer.producer import Producer
producer = Producer(bootstrap_servers={lives[0].bootstrap!r})
producer.send("ledger", b"before").result(30)
child = os.fork()
if child == 0:
    try:
        producer.send("ledger", b"child")
    except ClosedError as problem:
        print(problem, flush=True)
    producer.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(producer.send("ledger", b"parent").result(30).offset)
producer.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "made before a fork" in done.stdout
    assert done.stdout.splitlines()[-1] == "1"
