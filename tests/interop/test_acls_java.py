"""Kafka's own kafka-acls manages the rules of our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.peers.kafka import run_tool

from support.broker import Broker, start_braidlog

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SHOP = ("--allow-principal", "User:shop")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with start_braidlog(tmp_path_factory.mktemp("guarded"), SETTINGS) as broker:
        yield broker


def acls(broker: Broker, *arguments: str) -> str:
    done = run_tool("kafka-acls", ["--bootstrap-server", broker.bootstrap, *arguments])
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_kafkas_tool(guarded: Broker) -> None:
    added = acls(
        guarded, "--add", "--producer", "--topic", "orders", "--transactional-id", "shop", "--idempotent", *SHOP
    )
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in added
    acls(
        guarded, "--add", "--topic", "log", "--resource-pattern-type", "prefixed", "--operation", "Read",
        "--deny-principal", "User:*", "--deny-host", "10.0.0.7",
    )  # fmt: skip
    listed = acls(guarded, "--list")
    for resource, name in (("TOPIC", "orders"), ("TRANSACTIONAL_ID", "shop"), ("CLUSTER", "kafka-cluster")):
        assert f"ResourcePattern(resourceType={resource}, name={name}, patternType=LITERAL)" in listed
    assert "(principal=User:*, host=10.0.0.7, operation=READ, permissionType=DENY)" in listed
    assert "(principal=User:shop, host=*, operation=IDEMPOTENT_WRITE, permissionType=ALLOW)" in listed
    matching = acls(guarded, "--list", "--topic", "logs", "--resource-pattern-type", "match")
    assert "name=log, patternType=PREFIXED" in matching
    assert "orders" not in matching
    acls(guarded, "--remove", "--force", "--topic", "orders", "--operation", "Write", *SHOP)
    left = acls(guarded, "--list", "--topic", "orders")
    assert "operation=WRITE" not in left
    assert "operation=DESCRIBE" in left
    acls(guarded, "--remove", "--force", "--topic", "log", "--resource-pattern-type", "prefixed")
    assert "10.0.0.7" not in acls(guarded, "--list")
