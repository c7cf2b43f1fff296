"""Quotas from the command line; what they do to clients is in tests/interop/test_quotas.py."""

from __future__ import annotations

from typing import Any

import pytest

from support.broker import Broker


@pytest.fixture
def user(broker: Broker, topic: str) -> str:
    if broker.is_kafka:
        pytest.skip("Kafka's own quotas are tried with its own tools")
    return f"{topic} & co"


def rows(cli: Any, *entity: str) -> Any:
    found = cli("quotas", "list", *entity, "--output", "json").succeeded().json
    return [(row["user"], row["client_id"], row["ip"], row["quota"], row["value"]) for row in found]


def test_quotas_from_first_to_last(cli: Any, user: str) -> None:
    of_user = ("--user", user)
    done = cli("quotas", "set", *of_user, "--produce-rate", "1MB", "--fetch-rate", "2MiB").succeeded()
    assert f"quotas of user {user} set" in done.out
    cli("quotas", "set", *of_user, "--client-id", "app", "--request-percentage", "12.5").succeeded()
    cli("quotas", "set", *of_user, "--client-id-default", "controller_mutation_rate=3").succeeded()
    cli("quotas", "set", *of_user, "producer_byte_rate=5000").succeeded()
    assert rows(cli, *of_user) == [
        (user, "app", None, "request_percentage", 12.5),
        (user, "<default>", None, "controller_mutation_rate", 3.0),
        (user, None, None, "consumer_byte_rate", 2097152.0),
        (user, None, None, "producer_byte_rate", 5000.0),
    ]
    table = cli("quotas", "list", *of_user).succeeded().out.splitlines()
    assert table[0].split() == ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"]
    assert len(table) == 5

    assert "removed producer_byte_rate" in cli("quotas", "remove", *of_user, "producer_byte_rate").succeeded().out
    assert [row[3] for row in rows(cli, *of_user)] == [
        "request_percentage",
        "controller_mutation_rate",
        "consumer_byte_rate",
    ]
    cli("quotas", "remove", *of_user, "producer_byte_rate").failed("it has: consumer_byte_rate")
    cli("quotas", "remove", *of_user).succeeded()
    cli("quotas", "remove", *of_user, "--client-id", "app").succeeded()
    cli("quotas", "remove", *of_user, "--client-id-default").succeeded()
    cli("quotas", "remove", *of_user).failed("it has: none")
    assert rows(cli, *of_user) == []


def test_addresses(cli: Any, user: str) -> None:
    cli("quotas", "set", "--ip", "192.0.2.77", "--connection-rate", "5").succeeded()
    assert rows(cli, "--ip", "192.0.2.77") == [(None, None, "192.0.2.77", "connection_creation_rate", 5.0)]
    cli("quotas", "remove", "--ip", "192.0.2.77").succeeded()
    cli("quotas", "set", "--ip", "no.such.host.invalid", "--connection-rate", "5").failed("resolvable host")


def test_what_is_not_understood(cli: Any, user: str) -> None:
    cli("quotas", "set", "--produce-rate", "1MB").failed("whose quota?")
    cli("quotas", "set", "--user", user).failed("nothing to set")
    cli("quotas", "set", "--user", user, "--ip", "192.0.2.7", "--connection-rate", "1").failed("--ip goes without")
    cli("quotas", "set", "--user", user, "made_up=1").failed("there is no quota 'made_up'")
    cli("quotas", "set", "--user", user, "producer_byte_rate").failed("give QUOTA=VALUE")
    cli("quotas", "set", "--user", user, "producer_byte_rate=lots").failed("is no rate")
    cli("quotas", "set", "--user", user, "--produce-rate", "1XB").failed("is no rate", 2)
    cli("quotas", "set", "--user", user, "--request-percentage", "nan").failed("is not a number", 2)
    cli("quotas", "set", "--user", user, "--connection-rate", "1").failed("Invalid configuration key")
    cli("quotas", "set", "--user", "", "--produce-rate", "1").failed("at least one character", 2)
    cli("quotas", "set", "--user", user, "--user-default", "--produce-rate", "1").failed("not allowed with", 2)
