"""Rules of access from the command line: by one who may, and by those whom the rules are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker, start_braidlog

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_root="r" user_ann="a" user_bob="b";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root;User:CN=other,O=x",
}
ALLOW_ANN = ("--allow-principal", "User:ann")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with start_braidlog(tmp_path_factory.mktemp("guarded"), SETTINGS) as broker:
        yield broker
        assert broker.stop() == 0


@pytest.fixture
def cli(guarded: Broker, cli_of: Callable[[Broker], Any], tmp_path: Path) -> Callable[..., Any]:
    def run(user: str, *words: str) -> Any:
        path = tmp_path / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{user}" password="{user[0]}";\n'
        )
        return cli_of(guarded)("acls", *words, "--command-config", str(path))

    return run


def test_the_life_of_rules(cli: Callable[..., Any]) -> None:
    added = cli("root", "add", "--consumer", "--topic", "orders", "--group", "billing", *ALLOW_ANN).succeeded()
    assert added.lines == [
        "added: allow User:ann from * to Read topic 'orders'",
        "added: allow User:ann from * to Describe topic 'orders'",
        "added: allow User:ann from * to Read group 'billing'",
    ]
    prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed")
    made = cli("root", "add", *prefixed, "--deny-principal", "User:bob", "--output", "json").succeeded().json
    deny = {
        "resource": "Topic", "name": "ord", "pattern": "Prefixed", "permission": "Deny", "principal": "User:bob",
        "operation": "All", "host": "*",
    }  # fmt: skip
    assert made == [deny]
    listed = cli("root", "list", "--output", "json").succeeded().json
    assert len(listed) == 4
    assert deny in listed
    assert cli("root", "list", "--topic", "orders", "--output", "json").succeeded().json != listed
    match = ("--topic", "orders", "--resource-pattern-type", "match")
    assert deny in cli("root", "list", *match, "--output", "json").succeeded().json
    table = cli("root", "list", "--principal", "User:bob").succeeded()
    assert table.lines[0].split() == ["RESOURCE", "NAME", "PATTERN", "PERMISSION", "PRINCIPAL", "OPERATION", "HOST"]
    assert len(table.lines) == 2
    # A script has to agree beforehand, and sees what it would remove.
    asked = cli("root", "remove", *match, *ALLOW_ANN).failed("this would remove 2 rules; add --yes to do it")
    assert "allow User:ann from * to Read topic 'orders'" in asked.err
    gone = cli("root", "remove", *match, *ALLOW_ANN, "--yes", "--output", "json").succeeded().json
    assert [each["operation"] for each in gone] == ["Read", "Describe"]
    cli("root", "remove", *prefixed, "--force").succeeded()
    assert "no rule fits" in cli("root", "remove", *prefixed, "--yes").succeeded().err
    left = cli("root", "list", "--output", "json").succeeded().json
    assert [(each["resource"], each["name"]) for each in left] == [("Group", "billing")]
    cli("root", "remove", "--group", "*", "--group", "billing", "--yes").succeeded()


def test_which_rule_decides(cli: Callable[..., Any]) -> None:
    ask = ("explain", "--principal", "User:ann", "--operation", "Describe", "--topic", "logs-web")
    assert "may not Describe topic 'logs-web': no rule is about this resource" in cli("root", *ask).succeeded().out
    prefixed = ("--topic", "logs-", "--resource-pattern-type", "prefixed")
    cli("root", "add", *prefixed, "--operation", "Write", *ALLOW_ANN).succeeded()
    allowed = cli("root", *ask, "--output", "json").succeeded().json
    assert allowed["allowed"] is True
    assert allowed["rule"]["name"] == "logs-"
    assert allowed["super_users_known"] is True
    cli("root", "add", "--topic", "*", "--deny-principal", "User:*", "--deny-host", "10.0.0.7").succeeded()
    denied = cli("root", *ask, "--host", "10.0.0.7").succeeded().out
    assert "may not Describe topic 'logs-web' from 10.0.0.7: a rule denies it: deny User:* from 10.0.0.7" in denied
    assert cli("root", *ask, "--output", "json").succeeded().json["allowed"] is True
    for who in ("User:root", "User:CN=other,O=x"):
        by_right = cli("root", "explain", "--principal", who, "--operation", "Write", "--topic", "x").succeeded()
        assert f"{who} may Write topic 'x': {who} is a super user (super.users)" in by_right.out
    cli("root", "remove", "--topic", "*", "--yes").succeeded()
    cli("root", "remove", *prefixed, "--yes").succeeded()


def test_who_may_not(cli: Callable[..., Any], guarded: Broker) -> None:
    cli("ann", "list").failed("CLUSTER_AUTHORIZATION_FAILED")
    refused = cli("ann", "add", "--topic", "t", *ALLOW_ANN)
    assert refused.code == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.err
    assert cli("root", "list", "--topic", "t", "--output", "json").succeeded().json == []
    line = "Principal = User:ann is Denied Operation = Alter from host = 127.0.0.1 on resource = Cluster:LITERAL:"
    assert line in guarded.log()
    # Describe alone shows the rules and explains them.
    cli("root", "add", "--cluster", "--operation", "Describe", *ALLOW_ANN).succeeded()
    assert len(cli("ann", "list", "--output", "json").succeeded().json) == 1
    cli("ann", "remove", "--cluster", "--yes").failed("CLUSTER_AUTHORIZATION_FAILED")
    cli("root", "remove", "--cluster", "--yes").succeeded()


def test_what_is_not_understood(cli: Callable[..., Any]) -> None:
    cli("root", "add", "--topic", "t", "--allow-principal", "ann").failed("such as User:alice", 2)
    cli("root", "add", "--topic", "t", "--operation", "Fly", *ALLOW_ANN).failed("'Fly' is none of All, Read", 2)
    cli("root", "add", "--topic", "t", "--resource-pattern-type", "match", *ALLOW_ANN).failed("invalid choice", 2)
    cli("root", "add", "--topic", "t").failed("say whom the rules are about")
    cli("root", "remove", "--yes").failed("say which rules")
    cli("root", "explain", "--principal", "User:a", "--operation", "Read").failed("explain takes one resource")
    cli("root", "add", "--topic", "a/b", *ALLOW_ANN).failed("INVALID_REQUEST")


def test_without_an_authorizer(broker: Broker, cli_of: Callable[[Broker], Any]) -> None:
    if broker.is_kafka:
        pytest.skip("Kafka's own broker may have one")
    cli_of(broker)("acls", "list").failed("No Authorizer is configured on the broker; set authorizer.class.name")
