"""Who a broker is to the others, and what is said at its start where they would refuse it."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.broker.authorization.own_principal import cluster_action_problem, own_principal
from braidlog.config.broker import BrokerSettings
from braidlog.security.acls import CLUSTER_NAME, Acl, AclOperation, AclResourceType, AclRules, Permission
from support.certificates import Authority

BROKER = "User:broker"
ALLOWED = Acl(AclResourceType.CLUSTER, CLUSTER_NAME, BROKER, AclOperation.CLUSTER_ACTION)


def test_in_clear_text_it_is_anonymous() -> None:
    assert own_principal(BrokerSettings(), "PLAINTEXT", "PLAINTEXT") == "User:ANONYMOUS"


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", "plain.Plain"), ("SCRAM-SHA-512", "scram.Scram")])
def test_a_login_has_a_name(mechanism: str, module: str) -> None:
    login = f'org.apache.kafka.common.security.{module}LoginModule required username="broker" password="hush";'
    settings = BrokerSettings(
        {
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config": login,
        }
    )
    assert own_principal(settings, "INTERNAL", "SASL_PLAINTEXT") == BROKER


@pytest.mark.parametrize(
    "texts",
    [
        {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"},
        {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
        {"sasl.mechanism.inter.broker.protocol": "PLAIN", "listener.name.i.plain.sasl.jaas.config": "nonsense"},
    ],
)
def test_what_only_others_can_tell(texts: dict[str, str]) -> None:
    assert own_principal(BrokerSettings(texts), "I", "SASL_SSL") is None


def test_a_certificate_has_a_name(tmp_path: Path) -> None:
    identity = Authority(tmp_path).issue("broker")
    tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity.bundle)}
    asked = {**tls, "ssl.client.auth": "required"}
    assert own_principal(BrokerSettings(tls), "TLS", "SSL") == "User:ANONYMOUS"
    assert own_principal(BrokerSettings(asked), "TLS", "SSL") == "User:CN=broker"
    mapped = {**asked, "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1-1/,DEFAULT"}
    assert own_principal(BrokerSettings(mapped), "TLS", "SSL") == "User:broker-1"
    assert own_principal(BrokerSettings({**asked, "ssl.keystore.location": "/none"}), "TLS", "SSL") is None


@pytest.mark.parametrize(
    "rules",
    [
        AclRules([], frozenset({BROKER})),
        AclRules([ALLOWED]),
        AclRules([ALLOWED._replace(operation=AclOperation.ALL, principal="User:*", host="10.0.0.1")]),
        AclRules([], allow_if_none_found=True),
    ],
)
def test_others_do_as_it_asks(rules: AclRules) -> None:
    assert cluster_action_problem(rules, BROKER) is None


@pytest.mark.parametrize(
    "rules",
    [
        AclRules([]),
        AclRules([ALLOWED._replace(principal="User:x")], frozenset({"User:y"}), allow_if_none_found=True),
        AclRules([ALLOWED._replace(operation=AclOperation.DESCRIBE)]),
        AclRules([ALLOWED._replace(permission=Permission.DENY)]),
        AclRules([ALLOWED._replace(resource_type=AclResourceType.GROUP)]),
    ],
)
def test_others_would_refuse_it(rules: AclRules) -> None:
    problem = cluster_action_problem(rules, BROKER)
    assert problem is not None
    assert "this broker is User:broker to the others" in problem
    assert "super.users" in problem
    assert cluster_action_problem(rules, None) is None
