"""Unmodified clients log in to the broker with each mechanism, and are told in their own words when they may not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import braidlog
from braidlog.client.admin import ConfigResource
from braidlog.client.errors import AuthenticationFailed
from support.broker import Broker, start_braidlog
from support.eventually import eventually
from support.metrics import total

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "s3cret, with = and ü"
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,RENEWED://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,RENEWED:SASL_PLAINTEXT",
    "listener.name.renewed.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    # A client may log in anew after a second, and does so when most of this is over.
    "listener.name.renewed.scram-sha-256.connections.max.reauth.ms": "2000",
    "listener.name.clients.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.clients.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="broker" password="hush" user_{USER}="{PASSWORD}";'
    ),
    "connection.failed.authentication.delay.ms": "20",
}
# A refusal comes at once, plus the delay above; a loaded machine takes its time.
REFUSED_WITHIN_S = 20.0


class Guarded:
    """A broker with a listener that wants a login, and one for who sets it up."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        line = broker.process.wait_for_line(r"ready on PLAINTEXT://(\S+), CLIENTS://(\S+), RENEWED://(\S+) after")
        self.open, self.guarded, self.renewed = line.groups()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with start_braidlog(tmp_path_factory.mktemp("guarded"), LISTENERS) as broker:
        found = Guarded(broker)
        admin = AdminClient({"bootstrap.servers": found.open})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsertion = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])[USER].result(30)
        yield found
        assert PASSWORD not in broker.log()
        assert broker.stop() == 0


def login(mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def python_login(mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(guarded: Guarded, mechanism: str) -> None:
    topic = f"confluent-{mechanism}"
    settings = {"bootstrap.servers": guarded.guarded, **login(mechanism)}
    errors: list[Any] = []
    producer = Producer(settings)
    producer.produce(topic, b"hello", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = None
        deadline = time.monotonic() + 60
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(1.0)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"hello"
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [(USER, "wr0ng"), ("mallory", PASSWORD)])
def test_confluent_kafka_is_refused(guarded: Guarded, mechanism: str, user: str, password: str) -> None:
    errors: list[KafkaError] = []
    settings = {**login(mechanism, password, user), "error_cb": errors.append, "log_level": 0}
    producer = Producer({"bootstrap.servers": guarded.guarded, **settings})
    began = time.monotonic()
    while not errors and time.monotonic() - began < REFUSED_WITHIN_S:
        producer.poll(0.5)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "uthentication failed" in errors[0].str()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(guarded: Guarded, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    producer = kafka.KafkaProducer(bootstrap_servers=guarded.guarded, **python_login(mechanism))
    try:
        assert producer.send(topic, b"hello").get(30).offset == 0
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=guarded.guarded,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        **python_login(mechanism),
    )
    try:
        assert next(consumer).value == b"hello"
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_is_refused(guarded: Guarded, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    """It tries again whatever the broker says, and then tells of the time that took; the reason is in its log."""
    wrong = python_login(mechanism, "wr0ng")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(bootstrap_servers=guarded.guarded, bootstrap_timeout_ms=5_000, **wrong)
    assert "SaslAuthenticationFailedError" in caplog.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(guarded: Guarded, mechanism: str) -> None:
    topic = f"aiokafka-{mechanism}"

    async def main() -> None:
        settings = {"bootstrap_servers": guarded.guarded, **python_login(mechanism)}
        async with AIOKafkaProducer(**settings) as producer:
            assert (await producer.send_and_wait(topic, b"hello")).offset == 0
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 60)).value == b"hello"

    asyncio.run(main())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_is_refused(guarded: Guarded, mechanism: str) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=guarded.guarded, **python_login(mechanism, "wr0ng"))
        try:
            with pytest.raises(AioKafkaError):
                await asyncio.wait_for(producer.start(), REFUSED_WITHIN_S)
        finally:
            await producer.stop()

    asyncio.run(main())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_client(guarded: Guarded, mechanism: str) -> None:
    topic = f"braidlog-{mechanism}"
    with braidlog.Producer(bootstrap_servers=guarded.guarded, **python_settings(mechanism, PASSWORD)) as producer:
        assert producer.send(topic, value=b"hello").result(30).offset == 0
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=r"SASL authentication failed") as caught:
        braidlog.Admin(bootstrap_servers=guarded.guarded, **python_settings(mechanism, "wr0ng")).describe_cluster()
    assert time.monotonic() - began < REFUSED_WITHIN_S
    assert "wr0ng" not in str(caught.value)


def python_settings(mechanism: str, password: str) -> dict[str, Any]:
    return {key.replace(".", "_"): value for key, value in login(mechanism, password).items()}


def test_a_client_without_a_login_is_not_answered(guarded: Guarded) -> None:
    with (
        pytest.raises(AuthenticationFailed, match="wants clients to log in"),
        braidlog.Admin(bootstrap_servers=guarded.guarded) as admin,
    ):
        admin.describe_cluster()
    with pytest.raises(AuthenticationFailed, match="wants no SASL on this listener"):
        braidlog.Admin(bootstrap_servers=guarded.open, **python_settings("PLAIN", PASSWORD)).describe_cluster()


def test_a_mechanism_that_is_not_offered(guarded: Guarded) -> None:
    settings = {**login("OAUTHBEARER"), "sasl.oauth.token.provider": lambda: "token"}
    names = {key.replace(".", "_"): value for key, value in settings.items()}
    with pytest.raises(AuthenticationFailed, match="does not offer OAUTHBEARER, only PLAIN, SCRAM-SHA-256"):
        braidlog.Admin(bootstrap_servers=guarded.guarded, **names).describe_cluster()


RENEWALS = "kafka_server_socket_server_metrics_successful_reauthentication_total"


def send_with_confluent(bootstrap: str, topic: str, is_over: Callable[[], bool]) -> int:
    errors: list[Any] = []
    settings = {"bootstrap.servers": bootstrap, **login("SCRAM-SHA-256"), "enable.idempotence": True}
    producer = Producer(settings)
    while not is_over():
        producer.produce(topic, b"%d" % len(errors), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
    assert set(errors) == {None}
    return len(errors)


def send_with_ours(bootstrap: str, topic: str, is_over: Callable[[], bool]) -> int:
    sent = 0
    with braidlog.Producer(bootstrap_servers=bootstrap, **python_settings("SCRAM-SHA-256", PASSWORD)) as producer:
        while not is_over():
            assert producer.send(topic, value=b"%d" % sent).result(60).offset == sent
            sent += 1
    return sent


@pytest.mark.parametrize("send", [send_with_confluent, send_with_ours])
def test_sessions_are_renewed_and_no_record_is_lost(
    guarded: Guarded, topic: str, send: Callable[[str, str, Callable[[], bool]], int]
) -> None:
    before = total(guarded.broker, RENEWALS)
    deadline = time.monotonic() + 120

    def is_renewed() -> bool:
        assert time.monotonic() < deadline, "no session was renewed"
        return total(guarded.broker, RENEWALS) > before

    sent = send(guarded.renewed, topic, is_renewed)
    with braidlog.Consumer(bootstrap_servers=guarded.open, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        got: list[bytes | None] = []
        while len(got) < sent and time.monotonic() < deadline:
            got += [record.value for record in consumer.poll(1.0)]
        assert got == [b"%d" % number for number in range(sent)]


def test_users_are_described_altered_and_deleted(guarded: Guarded) -> None:
    """By librdkafka's own calls, over the listener that wants a login."""
    admin = AdminClient({"bootstrap.servers": guarded.guarded, **login("SCRAM-SHA-512")})
    name = "bob, of =the= north"
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, info, b"first")])[name].result(30)
    found = admin.describe_user_scram_credentials([name])[name].result(30)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    guest = {"bootstrap.servers": guarded.guarded, **login("SCRAM-SHA-256", "first", name)}
    assert AdminClient(guest).list_topics(timeout=30).brokers
    deletion = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])[name].result(30)
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials([name])[name].result(30)
    too_few = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4095)
    with pytest.raises(KafkaException, match="Too few iterations"):
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, too_few, b"x")])[name].result(30)


def test_users_of_plain_change_while_the_listener_runs(guarded: Guarded) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_carol="new";'

    def gets_in(user: str, password: str) -> bool:
        settings = {**python_settings("PLAIN", password), "sasl_username": user}
        try:
            with braidlog.Admin(bootstrap_servers=guarded.guarded, **settings) as admin:
                admin.describe_cluster()
        except AuthenticationFailed:
            return False
        return True

    assert not gets_in("carol", "new")
    with braidlog.Admin(bootstrap_servers=guarded.open) as admin:
        (broker,) = admin.describe_cluster().brokers
        resource = ConfigResource.broker(broker.broker_id)
        for value, then in ((jaas, True), (None, False)):
            admin.alter_configs({resource: {"listener.name.clients.plain.sasl.jaas.config": value}})[resource]
            eventually(lambda then=then: gets_in("carol", "new") == then, REFUSED_WITHIN_S)  # type: ignore[misc]
    assert gets_in(USER, PASSWORD)
