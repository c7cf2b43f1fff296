"""Clients of every kind against quotas: who has one is slowed down to it, and the others do not notice.

The windows are short here, so that the tests are; limits of time are the broker's own, from below. `long` tests hold
clients to their rate for twenty seconds with Kafka's windows.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from tools.peers.kafka import free_port, run_tool

from braidlog.client import admin as ours
from braidlog.client.admin import ANYBODY, DEFAULT, Admin, QuotaEntity, QuotaFilter, QuotaKey
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.producer.producer import Producer
from braidlog.core import protocol_errors as errors
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.metadata import MetadataRequest
from support import confluent, kafka_python
from support.broker import Broker, StartBroker
from support.raw import RawConnection
from support.raw_logins import log_in

DEADLINE_S = 60.0
# One whole second and the one that is under way.
SHORT_WINDOW = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
WINDOW_S = 2.0
RATE = 500_000
RECORD = bytes(10_000)
RECORDS = 250
# A window's worth may come at once; the rest takes its time.
LEAST_S = RECORDS * len(RECORD) / RATE - WINDOW_S

LIMITED, FREE = "limited", "free"


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker(SHORT_WINDOW)


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap, client_id="admin") as opened:
        yield opened


def limit(admin: Admin, entity: QuotaEntity, **quotas: float | None) -> None:
    admin.alter_client_quotas({entity: quotas}).raise_for_errors()


# Producers and consumers of every kind: each sends or reads RECORDS records under a client id.


def confluent_sends(bootstrap: str, client_id: str, topic: str) -> None:
    sender = confluent.producer(bootstrap, client_id=client_id, batch_size=50_000)
    for _ in range(RECORDS):
        sender.produce(topic, RECORD, partition=0)
    assert sender.flush(DEADLINE_S) == 0


def kafka_python_sends(bootstrap: str, client_id: str, topic: str) -> None:
    with kafka_python.producer(bootstrap, client_id=client_id) as sender:
        for each in [sender.send(topic, RECORD, partition=0) for _ in range(RECORDS)]:
            each.get(timeout=DEADLINE_S)


def aiokafka_sends(bootstrap: str, client_id: str, topic: str) -> None:
    async def main() -> None:
        sender = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=client_id)
        await sender.start()
        try:
            await asyncio.gather(*[await sender.send(topic, RECORD, partition=0) for _ in range(RECORDS)])
        finally:
            await sender.stop()

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def braidlog_sends(bootstrap: str, client_id: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, client_id=client_id) as sender:
        for each in [sender.send(topic, RECORD, partition=0) for _ in range(RECORDS)]:
            each.result(DEADLINE_S)


def confluent_reads(bootstrap: str, client_id: str, topic: str) -> None:
    with confluent.assigned(bootstrap, topic, client_id=client_id) as reader:
        found = 0
        while found < RECORDS:
            message = reader.poll(DEADLINE_S)
            assert message is not None
            if message.error() is None:
                found += 1


def kafka_python_reads(bootstrap: str, client_id: str, topic: str) -> None:
    with kafka_python.assigned(bootstrap, topic, client_id=client_id) as reader:
        found = 0
        ends = time.monotonic() + DEADLINE_S
        while found < RECORDS:
            assert time.monotonic() < ends
            found += sum(len(each) for each in reader.poll(timeout_ms=1000).values())


def aiokafka_reads(bootstrap: str, client_id: str, topic: str) -> None:
    async def main() -> None:
        reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, client_id=client_id)
        await reader.start()
        try:
            reader.assign([AioPartition(topic, 0)])
            await reader.seek_to_beginning()
            for _ in range(RECORDS):
                await reader.getone()
        finally:
            await reader.stop()

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def braidlog_reads(bootstrap: str, client_id: str, topic: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, client_id=client_id) as reader:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek_to_beginning()
        found = 0
        ends = time.monotonic() + DEADLINE_S
        while found < RECORDS:
            assert time.monotonic() < ends
            found += len(list(reader.poll(1.0)))


def both(work: Callable[[str, str, str], None], broker: Broker, topic: str) -> dict[str, float]:
    """How long the client with a quota and the one without took, side by side."""

    def timed(client_id: str) -> float:
        began = time.monotonic()
        work(broker.bootstrap, client_id, topic)
        return time.monotonic() - began

    with ThreadPoolExecutor(2) as threads:
        running = {client_id: threads.submit(timed, client_id) for client_id in (LIMITED, FREE)}
        return {client_id: each.result(2 * DEADLINE_S) for client_id, each in running.items()}


@pytest.mark.parametrize("sends", [confluent_sends, kafka_python_sends, aiokafka_sends, braidlog_sends])
def test_producers(broker: Broker, admin: Admin, topic: str, sends: Any) -> None:
    admin.create_topics([ours.NewTopic(topic, partitions=1)]).raise_for_errors()
    limit(admin, QuotaEntity(client_id=LIMITED), producer_byte_rate=RATE)
    took = both(sends, broker, topic)
    assert took[LIMITED] > LEAST_S
    assert took[FREE] < took[LIMITED]
    limit(admin, QuotaEntity(client_id=LIMITED), producer_byte_rate=None)
    again = both(sends, broker, topic)
    assert again[LIMITED] < took[LIMITED], "the quota is gone at once"


@pytest.mark.parametrize("reads", [confluent_reads, kafka_python_reads, aiokafka_reads, braidlog_reads])
def test_consumers(broker: Broker, admin: Admin, topic: str, reads: Any) -> None:
    admin.create_topics([ours.NewTopic(topic, partitions=1)]).raise_for_errors()
    braidlog_sends(broker.bootstrap, FREE, topic)
    limit(admin, QuotaEntity(client_id=LIMITED), consumer_byte_rate=RATE)
    took = both(reads, broker, topic)
    assert took[LIMITED] > LEAST_S
    assert took[FREE] < took[LIMITED]


def test_the_time_of_requests(broker: Broker, admin: Admin) -> None:
    limit(admin, QuotaEntity(client_id="raw"), request_percentage=0.001)
    with RawConnection(broker.port) as connection:
        first: Any = connection.ask("Metadata", 12, MetadataRequest(topics=None))
        assert 0 < first.throttle_time_ms <= 1000, "no longer than one sample of the window"
        began = time.monotonic()
        connection.ask("ApiVersions", 3, ApiVersionsRequest())
        assert time.monotonic() - began > first.throttle_time_ms / 1000 * 0.9
    # It is the time of the same client id on another connection, which is not held itself.
    with RawConnection(broker.port) as other:
        again: Any = other.ask("Metadata", 12, MetadataRequest(topics=None))
        assert again.throttle_time_ms > 0
    limit(admin, QuotaEntity(client_id="raw"), request_percentage=100_000)
    with RawConnection(broker.port) as connection:
        for _ in range(20):
            answer: Any = connection.ask("Metadata", 12, MetadataRequest(topics=None))
            assert answer.throttle_time_ms == 0


def test_users_are_those_of_logins(start_broker: StartBroker) -> None:
    """Whatever a client calls itself, and before it has logged in it is nobody's."""
    port, plain = free_port(), free_port()
    start_broker(
        {
            **SHORT_WINDOW,
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="a" user_bob="b";'
            ),
        }
    )
    with Admin(bootstrap_servers=f"127.0.0.1:{plain}", client_id="admin") as admin:
        limit(admin, QuotaEntity(user="ann"), request_percentage=0.001)
        limit(admin, QuotaEntity(user="ANONYMOUS", client_id="raw"), request_percentage=0.001)

        def throttle_ms(user: str, password: str) -> int:
            with log_in(port, user, password) as connection:
                answer: Any = connection.ask("Metadata", 12, MetadataRequest(topics=None))
                return int(answer.throttle_time_ms)

        assert throttle_ms("ann", "a") > 0
        assert throttle_ms("bob", "b") == 0
        # More specific than the user's.
        limit(admin, QuotaEntity(user="ann", client_id=DEFAULT), request_percentage=100_000)
        assert throttle_ms("ann", "a") == 0


def test_new_connections_of_an_address(broker: Broker, admin: Admin) -> None:
    limit(admin, QuotaEntity(ip="127.0.0.1"), connection_creation_rate=1)
    answered, took = _served(broker, 20)
    assert 1 <= answered <= 1 * (took + WINDOW_S) + 1
    # Over a connection that was there before.
    limit(admin, QuotaEntity(ip="127.0.0.1"), connection_creation_rate=None)
    assert _served(broker, 20)[0] == 20


def _served(broker: Broker, connections: int) -> tuple[int, float]:
    """How many new connections are served, and how long it took to open them; those throttled are closed in the end."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(connections):
            sock = socket.create_connection(("127.0.0.1", broker.port), timeout=DEADLINE_S)
            opened.append(stack.enter_context(contextlib.closing(sock)))
            # ApiVersions v0 without a client id.
            sock.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        took = time.monotonic() - began
        return sum(1 for sock in opened if _is_answered(sock)), took


def _is_answered(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(4))
    except ConnectionResetError:
        return False


def test_changes_of_topics_wait_for_the_quota_of_their_client(broker: Broker, admin: Admin, topic: str) -> None:
    """Clients try again by themselves when the time is over."""
    limit(admin, QuotaEntity(user="ANONYMOUS"), controller_mutation_rate=2)
    began = time.monotonic()
    # 22 partitions at once, then two a second.
    for number in range(3):
        admin.create_topics([ours.NewTopic(f"{topic}-{number}", partitions=12)]).raise_for_errors()
    assert time.monotonic() - began > 0.5
    theirs = confluent.admin(broker.bootstrap)
    assert len([name for name in theirs.list_topics(timeout=30).topics if name.startswith(topic)]) == 3


def test_a_throttled_client_does_not_hold_up_a_stop(broker: Broker, admin: Admin, topic: str) -> None:
    admin.create_topics([ours.NewTopic(topic, partitions=1)]).raise_for_errors()
    limit(admin, QuotaEntity(client_id="slow"), producer_byte_rate=1_000)
    with Producer(bootstrap_servers=broker.bootstrap, client_id="slow", delivery_timeout_ms=40_000) as producer:
        # Answered at once, and then the connection is held for minutes.
        producer.send(topic, bytes(200_000)).result(DEADLINE_S)
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < 60


# What is set, by all who set it


def test_our_admin_sets_and_describes(broker: Broker, admin: Admin, topic: str) -> None:
    user, client = QuotaEntity(user=topic), QuotaEntity(client_id=topic)
    pair = QuotaEntity(user=topic, client_id=DEFAULT)
    everybody = QuotaEntity(user=DEFAULT)
    address = QuotaEntity(ip="10.1.2.3")
    changes: dict[QuotaEntity, dict[str, float | None]] = {
        user: {QuotaKey.PRODUCER_BYTE_RATE: 1000.0, QuotaKey.REQUEST_PERCENTAGE: 12.5},
        client: {QuotaKey.CONSUMER_BYTE_RATE: 2000.0},
        pair: {QuotaKey.CONTROLLER_MUTATION_RATE: 3.0},
        everybody: {QuotaKey.PRODUCER_BYTE_RATE: 4000.0},
        address: {QuotaKey.CONNECTION_CREATION_RATE: 5.0},
    }
    assert admin.alter_client_quotas(changes, validate_only=True).errors == {}
    assert admin.describe_client_quotas() == {}
    assert admin.alter_client_quotas(changes).errors == {}
    assert set(admin.describe_client_quotas()) == set(changes)
    assert admin.describe_client_quotas()[user] == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert set(admin.describe_client_quotas(QuotaFilter(user=topic))) == {user, pair}
    assert set(admin.describe_client_quotas(QuotaFilter(user=topic, strict=True))) == {user}
    assert set(admin.describe_client_quotas(QuotaFilter(user=DEFAULT))) == {everybody}
    assert set(admin.describe_client_quotas(QuotaFilter(ip=ANYBODY))) == {address}
    wrong = admin.alter_client_quotas({user: {"no_such_quota": 1.0}, client: {QuotaKey.CONSUMER_BYTE_RATE: None}})
    assert isinstance(wrong.errors[user], errors.InvalidRequestError)
    assert client not in admin.describe_client_quotas()
    # A user's quotas and its passwords lie in one node.
    admin.alter_scram_users([ours.ScramUpsertion(topic, "password")]).raise_for_errors()
    limit(admin, user, producer_byte_rate=None, request_percentage=None)
    assert topic in admin.describe_scram_users([topic]).succeeded


@pytest.mark.peer
@pytest.mark.usefixtures("apache_kafka")
def test_kafka_configs(broker: Broker, admin: Admin) -> None:
    def tool(*arguments: str) -> str:
        done = run_tool("kafka-configs", ["--bootstrap-server", broker.bootstrap, *arguments])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    alter = ("--alter", "--add-config")
    tool(*alter, "producer_byte_rate=1024,request_percentage=50", "--entity-type", "users", "--entity-name", "a b")
    tool(*alter, "consumer_byte_rate=2048", "--entity-type", "users", "--entity-default", "--entity-type", "clients",
         "--entity-name", "app")  # fmt: skip
    tool(*alter, "connection_creation_rate=100", "--entity-type", "ips", "--entity-name", "10.0.0.1")
    assert admin.describe_client_quotas() == {
        QuotaEntity(user="a b"): {"producer_byte_rate": 1024.0, "request_percentage": 50.0},
        QuotaEntity(user=DEFAULT, client_id="app"): {"consumer_byte_rate": 2048.0},
        QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 100.0},
    }
    described = tool("--describe", "--entity-type", "users", "--entity-name", "a b")
    assert "producer_byte_rate=1024.0" in described
    assert "connection_creation_rate=100.0" in tool("--describe", "--entity-type", "ips")
    removal = ("--alter", "--delete-config")
    tool(*removal, "producer_byte_rate,request_percentage", "--entity-type", "users", "--entity-name", "a b")
    assert QuotaEntity(user="a b") not in admin.describe_client_quotas()


# Held to a rate for a while


class _Traffic:
    """Records that a client keeps sending or reading, until it is stopped."""

    def __init__(self) -> None:
        self.bytes = 0
        self.stopped = threading.Event()

    def send(self, bootstrap: str, client_id: str, topic: str) -> None:
        with Producer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=50_000) as producer:
            waiting = []
            while not self.stopped.is_set():
                waiting.append(producer.send(topic, RECORD, partition=0))
                if len(waiting) >= 20:
                    waiting.pop(0).result(DEADLINE_S)
                    self.bytes += len(RECORD)


@pytest.mark.long
def test_a_producer_keeps_to_its_rate_and_the_other_to_its_own(start_broker: StartBroker, topic: str) -> None:
    """Within a tenth over two windows, whatever the machine is doing: the broker's clock decides.

    As with Kafka a client that sends all it can has a window's worth at once, and then nothing until the window has
    passed: what counts is what it got before the third window's worth.
    """
    broker = start_broker()
    with Admin(bootstrap_servers=broker.bootstrap, client_id="admin") as admin:
        admin.create_topics([ours.NewTopic(topic, partitions=1)]).raise_for_errors()
        limit(admin, QuotaEntity(client_id=LIMITED), producer_byte_rate=1_000_000)
    traffic = {LIMITED: _Traffic(), FREE: _Traffic()}
    threads = [
        threading.Thread(target=each.send, args=(broker.bootstrap, client_id, topic), daemon=True)
        for client_id, each in traffic.items()
    ]
    for thread in threads:
        thread.start()
    time.sleep(21.5)
    rates = {client_id: each.bytes / 22 for client_id, each in traffic.items()}
    for each in traffic.values():
        each.stopped.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert rates[LIMITED] == pytest.approx(1_000_000, rel=0.1)
    assert rates[FREE] > 1.5 * rates[LIMITED]
