"""Unmodified clients log in with tokens, and are told in their own words when a token is not good."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider
from tools.peers.kafka import run_tool

import braidlog
from braidlog.client.errors import AuthenticationFailed
from braidlog.security.oauthbearer import encode_unsecured
from support.broker import Broker, start_braidlog
from support.token_issuer import Issuer, key_set

USER, AUDIENCE, ISSUER_NAME = "alice", "braidlog", "https://idp.example.com"
RSA, EC = Issuer("rsa-1"), Issuer("ec-1", "P-256")
PREFIX = "listener.name.clients.oauthbearer.sasl."
# A refusal comes at once, plus the delay below; a loaded machine takes its time.
REFUSED_WITHIN_S = 20.0


def settings(keys: Path) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,DEVELOPERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,DEVELOPERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{PREFIX}oauthbearer.expected.audience": f"{AUDIENCE},other",
        f"{PREFIX}oauthbearer.expected.issuer": ISSUER_NAME,
        f"{PREFIX}jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        "listener.name.developers.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredValidatorRequiredScope="develop";'
        ),
        "connection.failed.authentication.delay.ms": "20",
    }


class Guarded(NamedTuple):
    broker: Broker
    # Wants a signed token, and an unsigned one.
    signed: str
    unsigned: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    keys.write_text(key_set(RSA.published(use="sig", alg="RS256"), EC.published()))
    with start_braidlog(tmp_path_factory.mktemp("tokens"), settings(keys)) as broker:
        line = broker.process.wait_for_line(r"ready on \S+, CLIENTS://(\S+), DEVELOPERS://(\S+) after")
        yield Guarded(broker, line[1], line[2])
        log = broker.log()
        assert "takes unsigned tokens" in log
        for shown in ("eyJ", encode_unsecured({})[:20]):
            assert shown not in log
        assert broker.stop() == 0


def claims(**more: object) -> dict[str, Any]:
    now = time.time()
    return {"sub": USER, "iss": ISSUER_NAME, "aud": AUDIENCE, "iat": now, "exp": now + 3600, **more}


BAD: dict[str, Callable[[], str]] = {
    "expired": lambda: RSA.token(claims(iat=time.time() - 900, exp=time.time() - 600)),
    "wrong audience": lambda: RSA.token(claims(aud="somebody else")),
    "wrong issuer": lambda: RSA.token(claims(iss="https://evil.example.com")),
    "wrong key": lambda: Issuer("rsa-1", number=1).token(claims()),
    "unknown key": lambda: Issuer("rsa-2", number=1).token(claims()),
    "unsigned": lambda: encode_unsecured(claims()),
}
bad_tokens = pytest.mark.parametrize("token", BAD.values(), ids=[*BAD])
issuers = pytest.mark.parametrize("issuer", [RSA, EC], ids=["RS256", "ES256"])


def confluent_settings(token: str, expires: float | None = None) -> dict[str, Any]:
    lasts = time.time() + 3600 if expires is None else expires
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, lasts, USER, {"traceId": "1"}),
    }


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"traceId": "1"}


class AioProvider(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def python_settings(provider: object) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@issuers
def test_confluent_kafka(guarded: Guarded, issuer: Issuer) -> None:
    topic = f"confluent-{issuer.kid}"
    config = {"bootstrap.servers": guarded.signed, **confluent_settings(issuer.token(claims()))}
    errors: list[Any] = []
    producer = Producer(config)
    producer.produce(topic, b"hello", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


@bad_tokens
def test_confluent_kafka_is_refused(guarded: Guarded, token: Callable[[], str]) -> None:
    errors: list[KafkaError] = []
    config = {**confluent_settings(token()), "error_cb": errors.append, "log_level": 0}
    producer = Producer({"bootstrap.servers": guarded.signed, **config})
    deadline = time.monotonic() + REFUSED_WITHIN_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.5)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert '{"status":"invalid_token"}' in errors[0].str()


@issuers
def test_kafka_python(guarded: Guarded, issuer: Issuer) -> None:
    topic = f"kafka-python-{issuer.kid}"
    config = python_settings(Provider(issuer.token(claims())))
    producer = kafka.KafkaProducer(bootstrap_servers=guarded.signed, **config)
    try:
        assert producer.send(topic, b"hello").get(60).offset == 0
    finally:
        producer.close()


def test_kafka_python_is_refused(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    """It tries again whatever the broker says, and then tells of the time that took; the reason is in its log."""
    config = python_settings(Provider(BAD["expired"]()))
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(bootstrap_servers=guarded.signed, bootstrap_timeout_ms=5_000, **config)
    assert "SaslAuthenticationFailedError" in caplog.text
    assert "invalid_token" in caplog.text


@issuers
def test_aiokafka(guarded: Guarded, issuer: Issuer) -> None:
    topic = f"aiokafka-{issuer.kid}"

    async def main() -> None:
        config = {"bootstrap_servers": guarded.signed, **python_settings(AioProvider(issuer.token(claims())))}
        async with AIOKafkaProducer(**config) as producer:
            assert (await producer.send_and_wait(topic, b"hello")).offset == 0

    asyncio.run(main())


def test_aiokafka_is_refused(guarded: Guarded) -> None:
    async def main() -> None:
        config = python_settings(AioProvider(BAD["wrong key"]()))
        producer = AIOKafkaProducer(bootstrap_servers=guarded.signed, **config)
        try:
            with pytest.raises(AioKafkaError):
                await asyncio.wait_for(producer.start(), REFUSED_WITHIN_S)
        finally:
            await producer.stop()

    asyncio.run(main())


@issuers
def test_our_own_client(guarded: Guarded, issuer: Issuer) -> None:
    config = python_settings(lambda: issuer.token(claims()))
    with braidlog.Producer(bootstrap_servers=guarded.signed, **config) as producer:
        assert producer.send(f"braidlog-{issuer.kid}", value=b"hello").result(60).offset == 0


@bad_tokens
def test_our_own_client_is_refused(guarded: Guarded, token: Callable[[], str]) -> None:
    bad = token()
    with pytest.raises(AuthenticationFailed, match="invalid_token") as caught:
        braidlog.Admin(bootstrap_servers=guarded.signed, **python_settings(lambda: bad)).describe_cluster()
    assert bad not in str(caught.value)


def test_unsigned_tokens_where_they_are_asked_for(guarded: Guarded) -> None:
    narrow = encode_unsecured(claims())
    with pytest.raises(AuthenticationFailed, match="insufficient_scope, needed scope: develop"):
        braidlog.Admin(bootstrap_servers=guarded.unsigned, **python_settings(lambda: narrow)).describe_cluster()
    token = encode_unsecured(claims(scope="develop"))
    with braidlog.Admin(bootstrap_servers=guarded.unsigned, **python_settings(lambda: token)) as admin:
        assert admin.describe_cluster().brokers


@pytest.mark.peer
@pytest.mark.usefixtures("apache_kafka")
def test_javas_tools(guarded: Guarded, tmp_path: Path) -> None:
    """A token from a file, a bad one, and the unsecured one that the Java client makes itself."""
    package = "org.apache.kafka.common.security.oauthbearer."
    file = tmp_path / "token"

    def listed(bootstrap: str, options: str, more: str = "") -> tuple[int, str]:
        properties = tmp_path / "client.properties"
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.jaas.config={package}OAuthBearerLoginModule required {options};\n{more}"
        )
        arguments = ["--bootstrap-server", bootstrap, "--command-config", str(properties), "--list"]
        done = run_tool("kafka-topics", arguments)
        return done.returncode, done.stdout + done.stderr

    fetched = (
        f"sasl.login.callback.handler.class={package}OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
    )
    # Its own check of a token wants whole seconds and a scope.
    now = int(time.time())
    own = {"iat": now, "exp": now + 3600, "scope": "produce"}
    file.write_text(EC.token(claims(**own)))
    assert listed(guarded.signed, 'extension_traceId="1"', fetched)[0] == 0
    file.write_text(EC.token(claims(**own, aud="somebody else")))
    code, said = listed(guarded.signed, "", fetched)
    assert code != 0
    assert 'SaslAuthenticationException: {"status":"invalid_token"}' in said
    unsecured = 'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope=",develop"'
    assert listed(guarded.unsigned, unsecured)[0] == 0
    assert "insufficient_scope" in listed(guarded.unsigned, 'unsecuredLoginStringClaim_sub="alice"')[1]


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat")
def test_kcat(guarded: Guarded) -> None:
    """It makes unsecured tokens itself, and knows no others without a token endpoint."""

    def listed(scope: str) -> subprocess.CompletedProcess[str]:
        config = (
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanisms=OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt=true",
            f"sasl.oauthbearer.config=principal=alice scope={scope}",
        )
        options = [part for each in config for part in ("-X", each)]
        command = ["kcat", "-b", guarded.unsigned, *options, "-L", "-m", "20"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert listed("develop").returncode == 0
    refused = listed("other")
    assert refused.returncode != 0
    assert "insufficient_scope" in refused.stderr
