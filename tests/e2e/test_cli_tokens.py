"""Delegation tokens from the command line, made by users who log in and used by one who has nothing else."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker, start_braidlog

SECRET = "signed-with-this"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_owl="o";'
    ),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    secret = {"KAFKA_DELEGATION_TOKEN_SECRET_KEY": SECRET}
    with start_braidlog(tmp_path_factory.mktemp("guarded"), SETTINGS, env=secret) as broker:
        yield broker
        assert SECRET not in broker.log()
        assert broker.stop() == 0


@pytest.fixture
def login(tmp_path: Path) -> Callable[[str, str, str], tuple[str, str]]:
    def written(module: str, mechanism: str, options: str) -> tuple[str, str]:
        path = tmp_path / f"{abs(hash((module, options)))}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module} required {options};\n"
        )
        return "--command-config", str(path)

    return written


def test_a_tokens_life(
    guarded: Broker, cli_of: Callable[[Broker], Any], login: Callable[[str, str, str], tuple[str, str]]
) -> None:
    cli = cli_of(guarded)
    alice = login("plain.PlainLoginModule", "PLAIN", 'username="alice" password="a"')
    owl = login("plain.PlainLoginModule", "PLAIN", 'username="owl" password="o"')
    made = cli("tokens", "create", "--renewer", "User:owl", "--max-lifetime", "P1D", "--output", "json", *alice)
    token = made.succeeded().json
    assert (token["owner"], token["requester"], token["renewers"]) == ("User:alice", "User:alice", ["User:owl"])
    assert token["ends_ms"] - token["issued_ms"] == 86_400_000
    assert len(b64decode(token["hmac"])) == 64

    listed = cli("tokens", "list", "--output", "json", *owl).succeeded()
    assert listed.json == [{key: value for key, value in token.items() if key != "hmac"}]
    shown = cli("tokens", "list", "--owner", "User:alice", *alice).succeeded()
    assert token["token_id"] in shown.out
    assert token["hmac"] not in shown.out + listed.out
    assert token["token_id"] not in cli("tokens", "list", "--owner", "User:eve", *alice).succeeded().out

    holder = login(
        "scram.ScramLoginModule",
        "SCRAM-SHA-256",
        f'username="{token["token_id"]}" password="{token["hmac"]}" tokenauth="true"',
    )
    cli("topics", "create", "by-token", *holder).succeeded()
    cli("tokens", "create", *holder).failed("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")

    renewed = cli("tokens", "renew", token["token_id"], "--for", "PT1H", "--output", "json", *owl).succeeded().json
    assert renewed["expires_ms"] < token["expires_ms"]
    cli("tokens", "renew", "nobodys", *owl).failed("`braidlog tokens list` has those")
    assert "expires" in cli("tokens", "expire", token["token_id"], "--after", "PT1H", *alice).succeeded().out
    assert "has ended" in cli("tokens", "expire", token["token_id"], *alice).succeeded().out
    assert cli("tokens", "list", "--output", "json", *alice).succeeded().json == []
    cli("topics", "list", *holder).failed("SASL authentication failed")
    assert token["hmac"] not in guarded.log()


def test_what_is_no_principal_and_no_duration(guarded: Broker, cli_of: Callable[[Broker], Any]) -> None:
    cli = cli_of(guarded)
    cli("tokens", "create", "--owner", "alice").failed("write TYPE:NAME, such as User:alice", 2)
    cli("tokens", "create", "--max-lifetime", "1h").failed("ISO 8601", 2)


def test_where_there_are_none(broker: Broker, cli: Any) -> None:
    if broker.is_kafka:
        pytest.skip("Kafka's own broker may have tokens")
    cli("tokens", "create").failed("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")
