"""Users of Kerberos principals, by the examples of Kafka's documents and others."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.security.kerberos_names import (
    NoMatchingPrincipalRuleError,
    parse_principal_rules,
    realm_of,
)

RULES = [
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[1:$1@$0](.*@DEV\\.EXAMPLE\\.COM)s/@.*//U",
    "RULE:[2:$2](host-.*)/L",
    "RULE:[2:$1;$2](^.*;admin$)s/;admin$//",
    "DEFAULT",
]


@pytest.mark.parametrize(
    ("principal", "user"),
    [
        ("alice@EXAMPLE.COM", "alice"),
        ("kafka/broker.example.com@EXAMPLE.COM", "kafka"),
        ("App.service-name@EXAMPLE.COM", "service-name"),
        ("App.service-name/HOST-1@EXAMPLE.COM", "service-name"),
        ("bob@DEV.EXAMPLE.COM", "BOB"),
        ("spark/host-A@ELSEWHERE.COM", "host-a"),
        ("carol/admin@ELSEWHERE.COM", "carol"),
    ],
)
def test_the_first_rule_that_applies_counts(principal: str, user: str) -> None:
    assert parse_principal_rules(RULES, "EXAMPLE.COM").name_of(principal) == user


def test_once_or_everywhere() -> None:
    once, every = (parse_principal_rules([f"RULE:[1:$1]s/a/b/{flag}"], "R") for flag in ("", "g"))
    assert once.name_of("banana@R") == "bbnana"
    assert every.name_of("banana@R") == "bbnbnb"


@pytest.mark.parametrize("principal", ["alice@OTHER.COM", "alice", "", "a/b/c@EXAMPLE.COM", "@EXAMPLE.COM", "a@b@c"])
def test_nobody(principal: str) -> None:
    with pytest.raises(NoMatchingPrincipalRuleError, match="applies to"):
        parse_principal_rules(["DEFAULT"], "EXAMPLE.COM").name_of(principal)


def test_a_name_that_is_still_a_principal_is_nobodys() -> None:
    namer = parse_principal_rules(["RULE:[1:$1@$0]", "DEFAULT"], "EXAMPLE.COM")
    with pytest.raises(NoMatchingPrincipalRuleError, match="no user"):
        namer.name_of("alice@EXAMPLE.COM")


@pytest.mark.parametrize(
    "rule",
    ["", "default", "RULE:", "RULE:[1:$1](*)", "RULE:[1:$2]", "RULE:[1:$1]s/a/$1/", "RULE:[1:$1]/X"],
)
def test_a_rule_that_is_none(rule: str) -> None:
    with pytest.raises(UserError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        parse_principal_rules(["DEFAULT", rule], "EXAMPLE.COM")


def test_realms() -> None:
    assert realm_of("kafka/localhost@EXAMPLE.COM") == "EXAMPLE.COM"
    assert realm_of("kafka") == ""
