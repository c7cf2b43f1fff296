"""Unmodified clients log in with Kerberos tickets of a real server; what is missing for that skips the tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from tools.peers.kafka import TOOL_JVM, run_tool

from support.broker import Broker, start_braidlog
from support.kdc import REALM, Kdc

pytestmark = [pytest.mark.peer]

SERVICE = "kafka/localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
REFUSED_WITHIN_S = 20.0


class Kerberized(NamedTuple):
    broker: Broker
    bootstrap: str
    kdc: Kdc
    # By principal: alice is a user, mallory is none.
    keytabs: dict[str, Path]


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberized]:
    pytest.importorskip("gssapi", reason="no package gssapi; pip install 'braidlog[kerberos]'")
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    keytabs = {name: kdc.keytab(name) for name in (SERVICE, "alice", "mallory")}
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.clients.sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](a.*)/U",
        "listener.name.clients.gssapi.sasl.jaas.config": (
            f'{MODULE} keyTab="{keytabs[SERVICE]}" principal="{SERVICE}@{REALM}";'
        ),
        "connection.failed.authentication.delay.ms": "20",
    }
    with kdc.serving(), start_braidlog(tmp_path_factory.mktemp("broker"), settings, env=kdc.environment) as broker:
        line = broker.process.wait_for_line(r"ready on \S+, CLIENTS://(\S+) after")
        yield Kerberized(broker, line[1], kdc, keytabs)
        assert "failed authentication of '' with GSSAPI" in broker.log()
        assert f"applies to 'mallory@{REALM}'" in broker.log()
        assert broker.stop() == 0


@pytest.fixture
def as_user(kerberized: Kerberized, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """This process has the tickets of the user that the test names."""
    user = str(request.param)
    cache = kerberized.kdc.tickets(user, kerberized.keytabs[user])
    for key, value in {**kerberized.kdc.environment, "KRB5CCNAME": f"FILE:{cache}"}.items():
        monkeypatch.setenv(key, value)
    return user


ALICE = pytest.mark.parametrize("as_user", ["alice"], indirect=True)
MALLORY = pytest.mark.parametrize("as_user", ["mallory"], indirect=True)


def python_settings(kerberized: Kerberized) -> dict[str, Any]:
    return {
        "bootstrap_servers": kerberized.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }


@ALICE
def test_kafka_python(kerberized: Kerberized, as_user: str) -> None:
    producer = kafka.KafkaProducer(**python_settings(kerberized))
    try:
        assert producer.send("kafka-python", b"hello").get(60).offset == 0
    finally:
        producer.close()


@MALLORY
def test_kafka_python_is_refused(kerberized: Kerberized, as_user: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(bootstrap_timeout_ms=5_000, **python_settings(kerberized))
    assert "SaslAuthenticationFailedError" in caplog.text


@ALICE
def test_aiokafka(kerberized: Kerberized, as_user: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(**python_settings(kerberized)) as producer:
            assert (await producer.send_and_wait("aiokafka", b"hello")).offset == 0

    asyncio.run(main())


@MALLORY
def test_aiokafka_is_refused(kerberized: Kerberized, as_user: str) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(**python_settings(kerberized))
        try:
            with pytest.raises(AioKafkaError):
                await asyncio.wait_for(producer.start(), REFUSED_WITHIN_S)
        finally:
            await producer.stop()

    asyncio.run(main())


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.parametrize(("user", "is_let_in"), [("alice", True), ("mallory", False)])
def test_javas_tools(kerberized: Kerberized, tmp_path: Path, user: str, is_let_in: bool) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={MODULE} keyTab="{kerberized.keytabs[user]}" principal="{user}@{REALM}";\n'
    )
    arguments = ["--bootstrap-server", kerberized.bootstrap, "--command-config", str(properties), "--list"]
    jvm = (*TOOL_JVM, f"-Djava.security.krb5.conf={kerberized.kdc.config}")
    done = run_tool("kafka-topics", arguments, jvm=jvm)
    assert (done.returncode == 0) is is_let_in, done.stdout + done.stderr
    if not is_let_in:
        assert "SaslAuthenticationException: Authentication failed" in done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat")
@pytest.mark.parametrize(("user", "is_let_in"), [("alice", True), ("mallory", False)])
def test_kcat(kerberized: Kerberized, tmp_path: Path, user: str, is_let_in: bool) -> None:
    config = (
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanisms=GSSAPI",
        "sasl.kerberos.service.name=kafka",
        f"sasl.kerberos.keytab={kerberized.keytabs[user]}",
        f"sasl.kerberos.principal={user}@{REALM}",
    )
    options = [part for each in config for part in ("-X", each)]
    environment = {**os.environ, **kerberized.kdc.environment, "KRB5CCNAME": f"FILE:{tmp_path}/cache"}
    command = ["kcat", "-b", kerberized.bootstrap, *options, "-L", "-m", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    if "No worthy mechs found" in done.stderr:
        pytest.skip("kcat's SASL library has no GSSAPI; install libsasl2-modules-gssapi-mit")
    assert (done.returncode == 0) is is_let_in, done.stderr
    if not is_let_in:
        assert "uthentication failed" in done.stderr
