"""Our client is let in by Apache Kafka on every kind of listener, and told clearly when it is not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog import Admin, Consumer, Producer
from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.errors import AuthenticationFailed, NoConnection
from braidlog.client.network.engine import Engine
from braidlog.client.network.nodes import Nodes
from braidlog.client.settings import ADMIN, Settings
from braidlog.net.outbound import sasl
from braidlog.security.oauthbearer import encode_unsecured
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from support.broker import KAFKA
from support.certificates import Authority, encrypted_key, jks_key_store, jks_trust_store
from support.guarded_broker import PASSWORD, SESSION_MS, USER, GuardedBroker, start_guarded

pytestmark = pytest.mark.peer

METADATA = 3
SASL_AUTHENTICATE = 36
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Whatever is wrong has to be told while a person still waits.
TOLD_WITHIN_S = 30.0
CLI_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def kafka(apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with start_guarded(KAFKA, tmp_path_factory.mktemp("secured")) as running:
        yield running


def _login(mechanism: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return {**settings, "sasl.oauth.token.provider": _token}
    return {**settings, "sasl.username": USER, "sasl.password": PASSWORD}


def _token() -> str:
    now = time.time()
    return encode_unsecured({"sub": USER, "iat": now, "exp": now + 600})


def _brokers(bootstrap: str, settings: dict[str, Any]) -> list[int]:
    with ClusterConnection(bootstrap, 10.0, settings) as cluster:
        ids = cluster.broker_ids
        assert cluster.run(lambda call: _metadata_of(call, ids[0])).cluster_id
        return ids


async def _metadata_of(call: ClusterCall, broker_id: int) -> MetadataResponse:
    return await (await call.node(broker_id)).call(METADATA, MetadataRequest(topics=[]), MetadataResponse)


def _refusal(bootstrap: str, settings: dict[str, Any]) -> str:
    """What is told to who is not let in, soon enough and without the secret."""
    began = time.monotonic()
    with (
        pytest.raises((AuthenticationFailed, NoConnection)) as caught,
        ClusterConnection(bootstrap, 10.0, settings) as cluster,
    ):
        cluster.metadata([])
    assert time.monotonic() - began < TOLD_WITHIN_S
    reported = str(caught.value)
    assert str(settings.get("sasl.password", "no secret")) not in reported
    assert "\n" not in reported
    return reported


# TLS


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls(kafka: GuardedBroker, version: str) -> None:
    assert _brokers(kafka.at("TLS"), {**kafka.trust, "ssl.enabled.protocols": version}) == [1]


def test_mutual_tls(kafka: GuardedBroker) -> None:
    assert _brokers(kafka.at("MUTUAL"), {**kafka.trust, "ssl.keystore.location": str(kafka.client.bundle)}) == [1]
    in_settings = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": " ".join(kafka.authority.certificate.read_text().split("\n")),
        "ssl.keystore.key": encrypted_key(kafka.client, "pässword"),
        "ssl.keystore.certificate.chain": kafka.client.certificate.read_text(),
        "ssl.key.password": "pässword",
    }
    assert _brokers(kafka.at("MUTUAL"), in_settings) == [1]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_mutual_tls_without_a_certificate(kafka: GuardedBroker, version: str) -> None:
    reported = _refusal(kafka.at("MUTUAL"), {**kafka.trust, "ssl.enabled.protocols": version})
    assert "wants clients to have a certificate" in reported
    assert "ssl.keystore.location" in reported


def test_mutual_tls_with_a_strangers_certificate(kafka: GuardedBroker, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "somebody else").issue("stranger")
    reported = _refusal(kafka.at("MUTUAL"), {**kafka.trust, "ssl.keystore.location": str(stranger.bundle)})
    assert "does not accept this client's certificate" in reported


def test_java_key_stores(kafka: GuardedBroker) -> None:
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(jks_trust_store(kafka.authority, "changeit")),
        "ssl.truststore.password": "changeit",
        "ssl.keystore.location": str(jks_key_store(kafka.client, kafka.authority, "changeit")),
        "ssl.keystore.password": "changeit",
    }
    assert _brokers(kafka.at("MUTUAL"), settings) == [1]


def test_a_certificate_of_another_authority(kafka: GuardedBroker, tmp_path: Path) -> None:
    other = Authority(tmp_path, "somebody else")
    reported = _refusal(kafka.at("TLS"), {**kafka.trust, "ssl.truststore.location": str(other.certificate)})
    assert "is not to be trusted" in reported
    assert "ssl.truststore.location" in reported
    assert "is not to be trusted" in _refusal(kafka.at("TLS"), {"security.protocol": "SSL"})


def test_a_certificate_for_another_host(kafka: GuardedBroker) -> None:
    reported = _refusal(kafka.at("ELSEWHERE"), kafka.trust)
    assert "is for another host" in reported
    assert "ssl.endpoint.identification.algorithm" in reported
    assert _brokers(kafka.at("ELSEWHERE"), {**kafka.trust, "ssl.endpoint.identification.algorithm": ""}) == [1]


# SASL


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl_in_clear_text_and_over_tls(kafka: GuardedBroker, mechanism: str) -> None:
    login = _login(mechanism)
    assert _brokers(kafka.at("SASL"), login) == [1]
    assert _brokers(kafka.at("SASLTLS"), {**login, **kafka.trust, "security.protocol": "SASL_SSL"}) == [1]


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password(kafka: GuardedBroker, mechanism: str) -> None:
    reported = _refusal(kafka.at("SASL"), {**_login(mechanism), "sasl.password": "wr0ng"})
    assert "SASL authentication failed" in reported
    assert "check user name and password" in reported


def test_a_token_that_has_expired(kafka: GuardedBroker) -> None:
    def expired() -> str:
        return encode_unsecured({"sub": USER, "iat": 1, "exp": 2})

    reported = _refusal(kafka.at("SASL"), {**_login("OAUTHBEARER"), "sasl.oauth.token.provider": expired})
    assert "invalid_token" in reported
    assert "check the token" in reported


def test_an_unsecured_token_as_kafkas_login_module_makes_it(kafka: GuardedBroker) -> None:
    package = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = f'{package} required unsecuredLoginStringClaim_sub="{USER}" unsecuredLoginExtension_traceId="7";'
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas}
    assert _brokers(kafka.at("SASL"), login) == [1]


# The wrong protocol


def test_clear_text_where_tls_is_spoken(kafka: GuardedBroker) -> None:
    assert "speaks TLS here; set security.protocol=SSL" in _refusal(kafka.at("TLS"), {})
    assert "speaks TLS here; set security.protocol=SSL" in _refusal(kafka.at("SASLTLS"), _login("PLAIN"))


def test_tls_where_clear_text_is_spoken(kafka: GuardedBroker) -> None:
    assert "speaks clear text here, not TLS" in _refusal(kafka.at("PLAINTEXT"), kafka.trust)
    reported = _refusal(kafka.at("SASL"), {**kafka.trust, **_login("PLAIN"), "security.protocol": "SASL_SSL"})
    assert "security.protocol=PLAINTEXT (or SASL_PLAINTEXT)" in reported


def test_sasl_where_none_is_wanted_and_none_where_it_is(kafka: GuardedBroker) -> None:
    assert "wants no SASL on this listener" in _refusal(kafka.at("PLAINTEXT"), _login("PLAIN"))
    assert "set security.protocol=SASL_PLAINTEXT" in _refusal(kafka.at("SASL"), {})


# Sessions


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_are_renewed_while_requests_go_on(
    kafka: GuardedBroker, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka closes a connection whose session is over at the next request."""
    renewals: list[float] = []
    authenticate = sasl.authenticate

    async def counted(*arguments: Any, again: bool = False) -> int:
        lifetime_ms = await authenticate(*arguments, again=again)
        if again:
            renewals.append(time.monotonic())
        return lifetime_ms

    monkeypatch.setattr(sasl, "authenticate", counted)
    given = {**_login(mechanism), "bootstrap.servers": kafka.at("RENEWED")}
    engine = Engine("test")
    try:
        answered = engine.run(_keep_asking(Settings.of(ADMIN, given), 2.5 * SESSION_MS / 1000), 60)
    finally:
        engine.close()
    assert answered > 100
    assert len(renewals) >= 2, "the session was not renewed twice"


async def _keep_asking(settings: Settings, for_s: float) -> int:
    """Requests, several at a time, on one connection that must not break."""
    nodes = Nodes(settings)
    connection = await nodes.any()
    until = time.monotonic() + for_s
    answered = 0
    while time.monotonic() < until:
        version = connection.version_for(METADATA)
        pending = [connection.post(METADATA, version, MetadataRequest(topics=[]), 10.0) for _ in range(5)]
        for each in pending:
            assert isinstance(await each, MetadataResponse)
            answered += 1
    assert connection.is_open
    nodes.close()
    return answered


# The clients


def test_records_over_sasl_and_tls_through_several_sessions(kafka: GuardedBroker, topic: str) -> None:
    settings: dict[str, Any] = {**_login("SCRAM-SHA-256"), "bootstrap.servers": kafka.at("RENEWED")}
    over_tls: dict[str, Any] = {
        **settings, **kafka.trust, "security.protocol": "SASL_SSL", "bootstrap.servers": kafka.at("SASLTLS"),
    }  # fmt: skip
    payload = b"x" * 20_000
    until = time.monotonic() + 1.5 * SESSION_MS / 1000
    sent = 0
    with Producer(settings) as producer:
        while time.monotonic() < until:
            producer.send(topic, payload, key=b"%d" % sent).result(10)
            sent += 1
    with Producer(over_tls) as producer:
        for _ in range(200):
            producer.send(topic, payload, key=b"%d" % sent)
            sent += 1
        producer.flush(30)
    keys: list[bytes | None] = []
    with Consumer({**over_tls, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while len(keys) < sent and time.monotonic() < deadline:
            records = consumer.poll(1.0)
            assert all(record.value == payload for record in records)
            keys += [record.key for record in records]
    assert keys == [b"%d" % number for number in range(sent)]


def test_the_admin_is_let_in(kafka: GuardedBroker) -> None:
    settings = {**kafka.trust, **_login("SCRAM-SHA-512"), "security.protocol": "SASL_SSL"}
    with Admin({**settings, "bootstrap.servers": kafka.at("SASLTLS")}) as admin:
        assert admin.describe_cluster().cluster_id
    refused = {**settings, "sasl.password": "wr0ng", "bootstrap.servers": kafka.at("SASLTLS")}
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="check user name and password"), Admin(refused) as admin:
        admin.describe_cluster()
    assert time.monotonic() - began < TOLD_WITHIN_S


def test_clients_do_not_try_a_refused_login_again(kafka: GuardedBroker, topic: str) -> None:
    settings = {**_login("PLAIN"), "sasl.password": "wr0ng", "bootstrap.servers": kafka.at("SASL")}
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="check user name and password"), Producer(settings) as producer:
        producer.send(topic, b"x").result(20)
    assert time.monotonic() - began < TOLD_WITHIN_S
    with Consumer({**settings, "group.id": topic}) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(AuthenticationFailed, match="check user name and password"):
            _poll_in_vain(consumer)


def _poll_in_vain(consumer: Consumer) -> None:
    began = time.monotonic()
    while time.monotonic() - began < TOLD_WITHIN_S:
        consumer.poll(1.0)


# Commands


def _braidlog(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "braidlog", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=CLI_WITHIN_S, check=False)


@pytest.fixture
def properties(kafka: GuardedBroker, tmp_path: Path) -> str:
    """A file as Kafka's own tools take it."""
    quoted = PASSWORD.replace('"', '\\\\"')
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={kafka.at('SASLTLS')}\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'    username="{USER}" password="{quoted}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={kafka.authority.certificate}\n"
    )
    return str(path)


def test_commands_take_the_file(properties: str, topic: str) -> None:
    config = ("--config", properties)
    for words in (
        ("topics", "create", topic, "--command-config", properties, "--config", "retention.ms=60000"),
        ("topics", "describe", topic, *config),
        ("configs", "describe", "--topic", topic, *config),
        ("groups", "list", *config),
        ("transactions", "list", *config),
        ("doctor", "--command-config", properties),
    ):
        done = _braidlog(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    assert _braidlog("produce", topic, *config, stdin="one\ntwo\n").returncode == 0
    read = _braidlog("consume", topic, "--offset", "earliest", "--exit-at-end", *config)
    assert read.stdout == "one\ntwo\n", read.stderr
    assert topic in _braidlog("completion", "topics", *config, "--bootstrap", _server(properties)).stdout.split()
    assert _braidlog("topics", "delete", topic, *config).returncode == 0


def _server(properties: str) -> str:
    return Path(properties).read_text().split("\n")[0].partition("=")[2]


def test_commands_say_in_one_line_what_is_wrong(properties: str) -> None:
    for overrides, reported in (
        (
            ("-X", f"sasl.username={USER}", "-X", "sasl.password=wr0ng"),
            "SASL authentication failed",
        ),
        (("-X", "security.protocol=SASL_PLAINTEXT"), "speaks TLS here"),
        (("-X", "ssl.truststore.location="), "is not to be trusted"),
        (("-X", "sasl.mechanism=GSSAPI"), "set it to one of PLAIN"),
    ):
        done = _braidlog("topics", "list", "--config", properties, *overrides)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert reported in line
        assert "wr0ng" not in line
