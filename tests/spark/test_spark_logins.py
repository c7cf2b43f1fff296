"""Spark's own Kafka connector and our source log in to a braidlog broker, and say why where they may not."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.peers.maven import PeerMissing
from tools.peers.spark_kafka import spark_kafka_connector

from braidlog import Admin, Producer
from braidlog.client.admin.topics import NewTopic
from support.broker import BRAIDLOG, start_braidlog
from support.guarded_broker import PASSWORD, USER, GuardedBroker, add_scram_user, start_guarded
from support.login_scenarios import MECHANISMS, OK, SCENARIOS, java_properties
from support.spark_process import SparkProblem, SparkProcess, spark_process
from support.token_issuer import Issuer, key_set

pytestmark = pytest.mark.peer

TOPIC = "guarded"
FORMATS = ("kafka", "braidlog")
LOGINS = (*MECHANISMS, "SCRAM-SHA-512 over TLS", "mutual TLS")
# A driver tells of a broker whose certificate it does not trust as of one that does not answer; all of these are told.
REFUSALS = {
    "PLAIN, wrong password": "Invalid username or password",
    "SCRAM-SHA-256, wrong password": "invalid credentials with SASL mechanism SCRAM-SHA-256",
    "mechanism not offered": "PLAIN",
    "unknown authority": "SSL|not to be trusted",
}


class Scene(NamedTuple):
    spark: SparkProcess
    broker: GuardedBroker

    def read(self, source: str, scenario: str) -> list[bytes | None]:
        properties = java_properties(SCENARIOS[scenario], self.broker)
        options = {f"kafka.{name}": value for name, value in properties.items()}
        # A task that is refused is tried again; a plan is not, and fails first.
        return [record.value for record in self.spark.read(source, subscribe=TOPIC, **options)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    try:
        connector = spark_kafka_connector()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    with (
        start_guarded(BRAIDLOG, tmp_path_factory.mktemp("guarded")) as broker,
        spark_process({"spark.jars": connector.conf}) as spark,
    ):
        with Admin(bootstrap_servers=broker.at("PLAINTEXT")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)]).raise_for_errors()
        with Producer(bootstrap_servers=broker.at("PLAINTEXT")) as producer:
            producer.send(TOPIC, value=b"for those who may").result(60)
        yield Scene(spark, broker)


class Tokens(NamedTuple):
    """A listener that takes bearer tokens and delegation tokens."""

    bootstrap: str
    issuer: Issuer
    file: Path

    def bearer(self) -> dict[str, str]:
        package = "org.apache.kafka.common.security.oauthbearer."
        now = int(time.time())
        # Java's own check of a token wants a scope.
        self.file.write_text(self.issuer.token({"sub": USER, "iat": now, "exp": now + 3600, "scope": "read"}))
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{package}OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{package}OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.file.as_uri(),
        }

    def delegation(self) -> dict[str, str]:
        login = scram_login(USER, PASSWORD)
        with Admin({"bootstrap.servers": self.bootstrap, "security.protocol": "SASL_PLAINTEXT", **login}) as admin:
            token = admin.create_delegation_token()
        return scram_login(token.token_id, b64encode(token.hmac).decode(), ' tokenauth="true"')


def scram_login(user: str, password: str, more: str = "") -> dict[str, str]:
    quoted = password.replace('"', '\\"')
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{user}" password="{quoted}"{more};',
    }


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    place = tmp_path_factory.mktemp("tokens")
    issuer = Issuer()
    (place / "keys").write_text(key_set(issuer.published()))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,TOKENS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "delegation.token.secret.key": "of all brokers",
        "listener.name.tokens.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (place / "keys").as_uri(),
    }
    (place / "data").mkdir()
    with start_braidlog(place / "data", settings) as broker:
        line = broker.process.wait_for_line(r"ready on (?:PLAINTEXT://)?(\S+), TOKENS://(\S+) after")
        add_scram_user(line[1], USER, PASSWORD)
        with Producer(bootstrap_servers=line[1]) as producer:
            producer.send(TOPIC, value=b"for those who may").result(60)
        yield Tokens(line[2], issuer, place / "token")


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("kind", [Tokens.bearer, Tokens.delegation], ids=["OAUTHBEARER", "delegation token"])
def test_let_in_by_a_token(scene: Scene, tokens: Tokens, source: str, kind: Callable[[Tokens], dict[str, str]]) -> None:
    properties = {"bootstrap.servers": tokens.bootstrap, "security.protocol": "SASL_PLAINTEXT", **kind(tokens)}
    options = {f"kafka.{name}": value for name, value in properties.items()}
    read = scene.spark.read(source, subscribe=TOPIC, **options)
    assert [record.value for record in read] == [b"for those who may"]


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("scenario", LOGINS)
def test_let_in(scene: Scene, source: str, scenario: str) -> None:
    assert SCENARIOS[scenario].outcome == OK
    assert scene.read(source, scenario) == [b"for those who may"]


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("scenario", REFUSALS)
def test_refused(scene: Scene, source: str, scenario: str) -> None:
    with pytest.raises(SparkProblem, match=REFUSALS[scenario]) as caught:
        scene.read(source, scenario)
    assert PASSWORD not in str(caught.value)
