"""What the options of `braidlog acls` mean."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from braidlog.cli.acl_rules import filters, new_rules, operation, principal, resources
from braidlog.cli.program import build_parser
from braidlog.core.errors import UserError
from braidlog.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    Resource,
)

TOPIC = AclResourceType.TOPIC
READ_ORDERS = Acl(TOPIC, "orders", "User:ann", AclOperation.READ)
CLUSTER = Acl(AclResourceType.CLUSTER, CLUSTER_NAME, "User:ann", AclOperation.IDEMPOTENT_WRITE)
ANN = ("--allow-principal", "User:ann")


def parsed(verb: str, *words: str) -> Any:
    return build_parser("acls").parse_args(["acls", verb, *words])


def rules(*words: str) -> list[Acl]:
    return new_rules(parsed("add", *words))


def test_one_rule_for_each_resource_operation_principal_and_host() -> None:
    assert rules("--topic", "orders", "--operation", "read", *ANN) == [READ_ORDERS]
    # All, from everywhere, unless something is said.
    assert rules("--group", "*", *ANN) == [Acl(AclResourceType.GROUP, "*", "User:ann", AclOperation.ALL)]
    many = rules(
        "--topic", "a", "--topic", "b", "--operation", "Read", "--operation", "Write", *ANN,
        "--allow-principal", "User:bob", "--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2",
        "--deny-principal", "User:eve",
    )  # fmt: skip
    assert len(many) == len(set(many)) == 2 * 2 * (2 * 2 + 1)
    denied = Acl(TOPIC, "b", "User:eve", AclOperation.WRITE, Permission.DENY)
    assert denied in many


def test_prefixes() -> None:
    prefixed = rules("--topic", "or", "--cluster", "--resource-pattern-type", "PREFIXED", "--operation", "Create", *ANN)
    assert [acl.pattern_type for acl in prefixed] == [PatternType.PREFIXED, PatternType.LITERAL]


def test_every_kind_of_resource() -> None:
    options = parsed(
        "list", "--topic", "t", "--group", "g", "--transactional-id", "x", "--delegation-token", "d",
        "--user-principal", "User:u", "--cluster", "--topic", "t",
    )  # fmt: skip
    assert resources(options) == [
        Resource(TOPIC, "t"),
        Resource(AclResourceType.GROUP, "g"),
        Resource(AclResourceType.TRANSACTIONAL_ID, "x"),
        Resource(AclResourceType.DELEGATION_TOKEN, "d"),
        Resource(AclResourceType.USER, "User:u"),
        Resource(AclResourceType.CLUSTER, CLUSTER_NAME),
    ]


def test_what_a_producer_needs() -> None:
    found = rules("--producer", "--topic", "orders", "--transactional-id", "shop", "--idempotent", *ANN)
    assert {(acl.resource_type.name, acl.operation.name) for acl in found} == {
        ("TOPIC", "WRITE"), ("TOPIC", "DESCRIBE"), ("TOPIC", "CREATE"), ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"), ("CLUSTER", "IDEMPOTENT_WRITE"),
    }  # fmt: skip
    assert CLUSTER in found


def test_what_a_consumer_needs() -> None:
    found = rules("--consumer", "--topic", "orders", "--group", "billing", *ANN)
    assert {(acl.resource_type.name, acl.operation.name) for acl in found} == {
        ("TOPIC", "READ"), ("TOPIC", "DESCRIBE"), ("GROUP", "READ"),
    }  # fmt: skip
    both = rules("--consumer", "--producer", "--topic", "orders", "--group", "billing", *ANN)
    assert len(both) == 5


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--topic", "t"), "--allow-principal User:alice"),
        (ANN, "say what the rules are about"),
        (("--topic", "t", "--operation", "IdempotentWrite", *ANN), "IdempotentWrite means nothing for a topic"),
        (("--cluster", "--operation", "Read", *ANN), "there are All, Create"),
        (("--producer", "--topic", "t", "--operation", "Read", *ANN), "leave out --operation"),
        (("--producer", *ANN), "need a --topic"),
        (("--consumer", "--topic", "t", *ANN), "--consumer needs a --group"),
        (("--consumer", "--topic", "t", "--group", "g", "--idempotent", *ANN), "goes with --producer"),
        (("--topic", "t", "--idempotent", *ANN), "goes with --producer"),
        (("--producer", "--topic", "t", "--group", "g", *ANN), "given rules for a group"),
        (("--topic", "t", "--deny-host", "h", *ANN), "--deny-host goes with --deny-principal"),
    ],
)
def test_what_makes_no_rule(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        rules(*words)


def test_filters_leave_open_what_is_not_said() -> None:
    def of(*words: str) -> list[AclFilter]:
        return filters(parsed("remove", *words))

    orders = AclFilter(TOPIC, "orders", pattern_type=PatternType.LITERAL)
    assert of() == [AclFilter()]
    assert of("--topic", "orders") == [orders]
    assert of("--topic", "orders", "--operation", "All") == [orders._replace(operation=AclOperation.ALL)]
    assert of("--topic", "orders", *ANN) == [orders._replace(principal="User:ann", permission=Permission.ALLOW)]
    assert of(*ANN, "--allow-host", "*") == [AclFilter(principal="User:ann", permission=Permission.ALLOW, host="*")]
    assert of("--topic", "orders", "--resource-pattern-type", "match") == [
        orders._replace(pattern_type=PatternType.MATCH)
    ]
    assert [each.operation for each in of("--producer", "--topic", "orders", *ANN)] == [
        AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE,
    ]  # fmt: skip


def test_words() -> None:
    assert operation("cluster_action") == operation("CLUSTERACTION") == "ClusterAction"
    assert principal("User:CN=a,O=b:c") == "User:CN=a,O=b:c"
    for wrong in ("any", "unknown", "fly"):
        with pytest.raises(argparse.ArgumentTypeError, match="is none of All, Read"):
            operation(wrong)
    with pytest.raises(argparse.ArgumentTypeError, match="such as User:alice"):
        principal("alice")
