"""Kafka's own tool makes delegation tokens on our broker, and its clients log in with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.peers.kafka import run_tool

from support.broker import Broker, start_braidlog

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

SECRET = "signed-with-this"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_owl="o";'
    ),
}
TOKEN = re.compile(
    r"^(?P<id>[\w-]{22})\s+(?P<hmac>\S{88})\s+User:alice\s+User:alice\s+\[(?P<renewers>.*?)\]", re.MULTILINE
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    secret = {"KAFKA_DELEGATION_TOKEN_SECRET_KEY": SECRET}
    with start_braidlog(tmp_path_factory.mktemp("guarded"), SETTINGS, env=secret) as broker:
        yield broker
        assert SECRET not in broker.log()


def login(place: Path, name: str, mechanism: str, module: str, options: str) -> str:
    path = place / f"{name}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required {options};\n"
    )
    return str(path)


def tool(broker: Broker, name: str, config: tuple[str, str], *arguments: str, lines: str | None = None) -> str:
    done = run_tool(name, ["--bootstrap-server", broker.bootstrap, *config, *arguments], input_text=lines)
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_kafkas_tool_and_clients(guarded: Broker, tmp_path: Path) -> None:
    alice = login(tmp_path, "alice", "PLAIN", "plain.PlainLoginModule", 'username="alice" password="a"')
    owl = login(tmp_path, "owl", "PLAIN", "plain.PlainLoginModule", 'username="owl" password="o"')
    as_alice, as_owl = ("--command-config", alice), ("--command-config", owl)
    tokens = "kafka-delegation-tokens"
    created = tool(
        guarded, tokens, as_alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:owl"
    )
    token = TOKEN.search(created)
    assert token is not None, created
    assert token["renewers"] == "User:owl"
    described = tool(guarded, tokens, as_owl, "--describe", "--owner-principal", "User:alice")
    assert token["id"] in described
    renewed = tool(guarded, tokens, as_owl, "--renew", "--renew-time-period", "-1", "--hmac", token["hmac"])
    assert "Completed renew operation" in renewed

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        options = f'username="{token["id"]}" password="{token["hmac"]}" tokenauth="true"'
        holder = login(tmp_path, mechanism, mechanism, "scram.ScramLoginModule", options)
        topic = f"by-token-{mechanism}"
        tool(guarded, "kafka-console-producer", ("--producer.config", holder), "--topic", topic, lines="hello\n")
        read = tool(
            guarded,
            "kafka-console-consumer",
            ("--consumer.config", holder),
            "--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000",
        )  # fmt: skip
        assert "hello" in read
        refused = run_tool(
            tokens,
            ["--bootstrap-server", guarded.bootstrap, "--command-config", holder, "--describe"],
        )
        assert "Delegation Token requests are not allowed" in refused.stdout + refused.stderr

    ended = tool(guarded, tokens, as_alice, "--expire", "--expiry-time-period", "-1", "--hmac", token["hmac"])
    assert "Completed expire operation" in ended
    assert token["id"] not in tool(guarded, tokens, as_alice, "--describe")
    late = run_tool("kafka-topics", ["--bootstrap-server", guarded.bootstrap, "--command-config", holder, "--list"])
    assert late.returncode != 0
    assert "SaslAuthenticationException" in late.stdout + late.stderr
    assert token["hmac"] not in guarded.log()
