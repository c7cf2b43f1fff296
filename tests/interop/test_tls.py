"""Unmodified clients over TLS: with and without a certificate of their own, and with a login inside."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

import braidlog
from braidlog.client.admin import ConfigResource as BrokerResource
from braidlog.client.errors import AuthenticationFailed
from braidlog.core.protocol_errors import InvalidRequestError
from support.broker import Broker, start_braidlog
from support.certificates import (
    Authority,
    encrypted_key,
    jks_key_store,
    jks_trust_store,
    pkcs12_key_store,
    pkcs12_trust_store,
)
from support.eventually import eventually

USER, PASSWORD = "alice", "s3cret"
STORE_PASSWORD = "st0re-passw0rd"
REFUSED_WITHIN_S = 20.0


class Secured:
    """A broker whose listeners speak TLS, and what clients need to trust it."""

    def __init__(self, broker: Broker, authority: Authority, place: Path) -> None:
        self.broker = broker
        self.authority = authority
        self.client = authority.issue("alice")
        self.stranger = Authority(place / "stranger", "somebody else").issue("mallory")
        ready = r"ready on TLS://(\S+), MUTUAL://(\S+), LOGIN://(\S+), PLAINTEXT://\S+ after"
        self.tls, self.mutual, self.login = broker.process.wait_for_line(ready).groups()

    @property
    def trust(self) -> str:
        return str(self.authority.certificate)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place = tmp_path_factory.mktemp("tls")
    authority = Authority(place / "authority")
    identity = authority.issue("localhost", "localhost", "127.0.0.1")
    inline = encrypted_key(identity, STORE_PASSWORD)
    settings = {
        "listeners": "TLS://127.0.0.1:0,MUTUAL://127.0.0.1:0,LOGIN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "TLS:SSL,MUTUAL:SSL,LOGIN:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.bundle),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/L,DEFAULT",
        "listener.name.mutual.ssl.keystore.location": "",
        "listener.name.mutual.ssl.keystore.key": inline.replace("\n", " "),
        "listener.name.mutual.ssl.keystore.certificate.chain": identity.certificate.read_text().replace("\n", " "),
        "listener.name.mutual.ssl.key.password": STORE_PASSWORD,
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "connection.failed.authentication.delay.ms": "20",
        "log.segment.bytes": "10485760",
    }
    with start_braidlog(place / "data", settings) as broker:
        yield Secured(broker, authority, place)
        for secret in (PASSWORD, STORE_PASSWORD, "PRIVATE KEY"):
            assert secret not in broker.log()
        assert broker.stop() == 0


def confluent(secured: Secured, kind: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"security.protocol": "SSL", "ssl.ca.location": secured.trust}
    if kind == "mutual":
        settings |= {
            "ssl.certificate.location": str(secured.client.certificate),
            "ssl.key.location": str(secured.client.key),
        }
    elif kind == "login":
        login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        settings |= {"security.protocol": "SASL_SSL", **login}
    return {"bootstrap.servers": getattr(secured, kind), **settings}


def python(secured: Secured, kind: str) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=secured.trust)
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_context": context}
    if kind == "mutual":
        context.load_cert_chain(secured.client.bundle)
    elif kind == "login":
        login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        settings |= {"security_protocol": "SASL_SSL", **login}
    return {"bootstrap_servers": getattr(secured, kind), **settings}


def ours(secured: Secured, kind: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": secured.trust}
    if kind == "mutual":
        settings["ssl_keystore_location"] = str(secured.client.bundle)
    elif kind == "login":
        login = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
        settings |= {"security_protocol": "SASL_SSL", **login}
    return {"bootstrap_servers": getattr(secured, kind), **settings}


KINDS = ("tls", "mutual", "login")


@pytest.mark.parametrize("kind", KINDS)
def test_confluent_kafka(secured: Secured, kind: str) -> None:
    errors: list[Any] = []
    producer = Producer(confluent(secured, kind))
    for number in range(100):
        producer.produce(f"confluent-{kind}", b"%d" % number, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * 100


@pytest.mark.parametrize("kind", KINDS)
def test_kafka_python(secured: Secured, kind: str) -> None:
    producer = kafka.KafkaProducer(**python(secured, kind))
    try:
        assert producer.send(f"kafka-python-{kind}", b"hello").get(60).offset == 0
    finally:
        producer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_aiokafka(secured: Secured, kind: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(**python(secured, kind)) as producer:
            assert (await producer.send_and_wait(f"aiokafka-{kind}", b"hello")).offset == 0

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_client_reads_what_it_wrote(secured: Secured, kind: str) -> None:
    """Megabytes, which in clear text would go by sendfile."""
    topic, settings = f"ours-{kind}", ours(secured, kind)
    values = [b"%06d" % number * 2000 for number in range(500)]
    with braidlog.Producer(**settings) as producer:
        sent = [producer.send(topic, value=value, partition=0) for value in values]
        assert [each.result(60).offset for each in sent] == list(range(500))
    got: list[bytes] = []
    with braidlog.Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        deadline = time.monotonic() + 60
        while len(got) < len(values) and time.monotonic() < deadline:
            got += [record.value for record in consumer.poll(1.0)]
    assert got == values


def test_a_client_without_a_certificate_is_refused(secured: Secured) -> None:
    settings = {**ours(secured, "tls"), "bootstrap_servers": secured.mutual}
    with pytest.raises(AuthenticationFailed, match="wants clients to have a certificate"):
        braidlog.Admin(**settings).describe_cluster()
    stranger = {**settings, "ssl_keystore_location": str(secured.stranger.bundle)}
    with pytest.raises(AuthenticationFailed, match="does not accept this client's certificate"):
        braidlog.Admin(**stranger).describe_cluster()
    errors: list[KafkaError] = []
    refused = {**confluent(secured, "tls"), "bootstrap.servers": secured.mutual}
    producer = Producer({**refused, "error_cb": errors.append, "log_level": 0})
    began = time.monotonic()
    while not errors and time.monotonic() - began < REFUSED_WITHIN_S:
        producer.poll(0.5)
    assert "certificate required" in errors[0].str()


def test_what_a_listener_asks_for_changes_while_it_runs(secured: Secured) -> None:
    """For the connections that come."""

    def refused() -> bool:
        try:
            with braidlog.Admin(**ours(secured, "tls")) as anyone:
                anyone.describe_cluster()
        except AuthenticationFailed:
            return True
        return False

    with braidlog.Admin(**ours(secured, "mutual")) as admin:
        (broker,) = admin.describe_cluster().brokers
        resource = BrokerResource.broker(broker.broker_id)
        assert not refused()
        for value, then in (("required", True), (None, False)):
            admin.alter_configs({resource: {"listener.name.tls.ssl.client.auth": value}})[resource]
            eventually(lambda then=then: refused() == then, REFUSED_WITHIN_S)  # type: ignore[misc]


def test_a_wrong_password_over_tls(secured: Secured) -> None:
    with pytest.raises(AuthenticationFailed, match="SASL authentication failed"):
        braidlog.Admin(**{**ours(secured, "login"), "sasl_password": "wr0ng"}).describe_cluster()


def test_a_broker_that_is_not_trusted(secured: Secured) -> None:
    settings = {**ours(secured, "tls"), "ssl_truststore_location": str(secured.stranger.certificate)}
    with pytest.raises(AuthenticationFailed, match="is not to be trusted"):
        braidlog.Admin(**settings).describe_cluster()


def test_clear_text_where_tls_is_spoken(secured: Secured) -> None:
    with pytest.raises(AuthenticationFailed, match="speaks TLS here"):
        braidlog.Admin(bootstrap_servers=secured.tls).describe_cluster()


def test_secrets_are_not_described(secured: Secured) -> None:
    admin = AdminClient(confluent(secured, "login"))
    (broker,) = admin.list_topics(timeout=30).brokers
    (described,) = admin.describe_configs([ConfigResource("broker", str(broker))]).values()
    shown = {name: entry.value for name, entry in described.result(30).items()}
    assert shown["ssl.keystore.type"] == "PEM"
    for name, value in shown.items():
        if name.endswith((".password", "jaas.config", "keystore.key", "certificate.chain")):
            assert value is None, name


def test_a_certificate_of_somebody_else_is_not_taken_while_it_runs(secured: Secured) -> None:
    """Nor one for fewer hosts: clients that know the broker under them would be lost."""
    other = secured.authority.issue("somebody", "localhost", "127.0.0.1")
    fewer = secured.authority.issue("localhost", "localhost")
    for identity, reason in ((other, "ssl.allow.dn.changes"), (fewer, "ssl.allow.san.changes")):
        with braidlog.Admin(**ours(secured, "login")) as admin:
            (broker,) = admin.describe_cluster().brokers
            resource = BrokerResource.broker(broker.broker_id)
            key = "listener.name.tls.ssl.keystore.location"
            for path, why in ((str(identity.bundle), reason), ("nowhere.pem", "cannot be read|No such file")):
                with pytest.raises(InvalidRequestError, match=why):
                    admin.alter_configs({resource: {key: path}})[resource]
    with braidlog.Admin(**ours(secured, "tls")) as anyone:
        assert anyone.describe_cluster().cluster_id


@pytest.mark.peer
def test_stores_of_java(tmp_path: Path) -> None:
    """Listeners with a key and trusted certificates in PKCS12 and in JKS; keytool makes them."""
    authority = Authority(tmp_path / "authority")
    identity, client = authority.issue("localhost", "localhost", "127.0.0.1"), authority.issue("alice")
    settings = {
        "listeners": "NEWER://127.0.0.1:0,OLDER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "NEWER:SSL,OLDER:SSL,PLAINTEXT:PLAINTEXT",
        "ssl.client.auth": "required",
    }
    stores = {
        "newer": ("PKCS12", pkcs12_key_store, pkcs12_trust_store),
        "older": ("JKS", jks_key_store, jks_trust_store),
    }
    for listener, (kind, key_store, trust_store) in stores.items():
        settings |= {
            f"listener.name.{listener}.ssl.keystore.type": kind,
            f"listener.name.{listener}.ssl.keystore.location": str(key_store(identity, authority, STORE_PASSWORD)),
            f"listener.name.{listener}.ssl.keystore.password": STORE_PASSWORD,
            f"listener.name.{listener}.ssl.truststore.type": kind,
            f"listener.name.{listener}.ssl.truststore.location": str(trust_store(authority, STORE_PASSWORD)),
            f"listener.name.{listener}.ssl.truststore.password": STORE_PASSWORD,
        }
    with start_braidlog(tmp_path / "data", settings) as broker:
        ready = broker.process.wait_for_line(r"ready on NEWER://(\S+), OLDER://(\S+), ")
        for address in ready.groups():
            trust = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.certificate)}
            with braidlog.Admin(bootstrap_servers=address, **trust, ssl_keystore_location=str(client.bundle)) as admin:
                assert admin.describe_cluster().cluster_id
            with pytest.raises(AuthenticationFailed, match="wants clients to have a certificate"):
                braidlog.Admin(bootstrap_servers=address, **trust).describe_cluster()
        assert STORE_PASSWORD not in broker.log()
        assert broker.stop() == 0
