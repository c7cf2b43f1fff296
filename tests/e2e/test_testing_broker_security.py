"""`braidlog.testing.Broker` with TLS and users: each library is let in with the settings that it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

import braidlog
from braidlog.client.errors import AuthenticationFailed
from braidlog.testing import Broker, Kind

USERS = {"alice": 's3cret, \\ with " and ü', "bob": "b0b"}


def with_confluent(settings: dict[str, Any], topic: str) -> None:
    errors: list[Any] = []
    producer = Producer(settings)
    producer.produce(topic, b"hello", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


def with_kafka_python(settings: dict[str, Any], topic: str) -> None:
    producer = kafka.KafkaProducer(**settings)
    try:
        producer.send(topic, b"hello").get(60)
    finally:
        producer.close()


def with_aiokafka(settings: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"hello")

    asyncio.run(main())


def with_ours(settings: dict[str, Any], topic: str) -> None:
    with braidlog.Producer(**settings) as producer:
        producer.send(topic, value=b"hello").result(60)


SENDERS: dict[Any, Callable[[dict[str, Any], str], None]] = {
    "braidlog": with_ours,
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}
WAYS: dict[str, dict[str, Any]] = {
    "TLS": {"tls": True},
    "mutual": {"tls": "mutual"},
    "PLAIN": {"users": USERS, "mechanism": "PLAIN"},
    "SCRAM and TLS": {"tls": True, "users": USERS, "mechanism": "SCRAM-SHA-256"},
}


@pytest.fixture(scope="module", params=WAYS)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(**WAYS[request.param]) as made:
        yield made


@pytest.mark.parametrize("library", SENDERS)
def test_a_library_is_let_in(broker: Broker, library: Any) -> None:
    topic = broker.create_topic()
    SENDERS[library](broker.client_settings(library), topic)
    with broker.consumer(topic) as consumer:
        assert [record.value for record in consumer.poll(60)] == [b"hello"]


def test_others_are_not(broker: Broker) -> None:
    with pytest.raises(AuthenticationFailed), braidlog.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.describe_cluster()


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_users_and_certificates_outlive_a_restart(kind: Kind) -> None:
    with Broker(kind, tls=True, users=USERS) as broker:
        bobs = broker.client_settings(user="bob")
        assert (bobs["sasl_username"], bobs["sasl_password"]) == ("bob", "b0b")
        broker.restart()
        with braidlog.Admin(**bobs) as admin:
            admin.describe_cluster()
        with pytest.raises(AuthenticationFailed):
            braidlog.Admin(**{**bobs, "sasl_password": "wr0ng"}).describe_cluster()
        with pytest.raises(ValueError, match="there is no user 'carol'; there are: alice, bob"):
            broker.client_settings(user="carol")
