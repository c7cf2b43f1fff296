"""What handlers ask: with rules and without, and what is remembered and counted."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from braidlog.broker.authorization.audit_log import AuditLog
from braidlog.broker.authorization.authorizer import AclAuthorizer, Authorizer, principal_of
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from braidlog.net.exchange import Exchange
from braidlog.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclOperation,
    AclResourceType,
    AclRules,
    Permission,
    Resource,
    operations_of,
)
from support.authorized_broker import allow, allow_cluster, allow_topic, authorizer_of, exchange_of

TOPIC = AclResourceType.TOPIC
READ = Acl(TOPIC, "orders", "User:ann", AclOperation.READ)


@dataclass
class FakeChannel:
    principal: str = "ann"
    peer_host: str = "10.0.0.1"


@dataclass
class FakeExchange:
    channel: FakeChannel = field(default_factory=FakeChannel)
    api_key: int = 0


def exchange(who: str = "ann", host: str = "10.0.0.1") -> Exchange:
    return cast(Exchange, FakeExchange(FakeChannel(who, host)))


class CountedRules(AclRules):
    asked = 0

    def decide(self, principal: str, host: str, operation: AclOperation, resource: Resource) -> Any:
        self.asked += 1
        return super().decide(principal, host, operation, resource)


def authorizer(rules: AclRules) -> AclAuthorizer:
    return AclAuthorizer(rules, AuditLog(lambda delay, call: None))


def test_without_rules_everybody_may_do_everything() -> None:
    open_to_all = Authorizer()
    assert not open_to_all.enabled
    assert open_to_all.authorize(exchange(), AclOperation.DELETE, TOPIC, "orders")
    assert open_to_all.allowed(exchange(), AclOperation.READ, TOPIC, ["a", "b"]) == {"a", "b"}
    assert open_to_all.authorize_by_resource_type(exchange(), AclOperation.WRITE, TOPIC)
    open_to_all.check_cluster(exchange(), AclOperation.ALTER)
    for resource_type, operations in OPERATIONS.items():
        assert operations_of(open_to_all.authorized_operations(exchange(), resource_type, "x")) == set(operations)


def test_rules_decide() -> None:
    by_rules = authorizer(AclRules([READ]))
    assert by_rules.enabled
    assert principal_of(exchange()) == "User:ann"
    assert by_rules.authorize(exchange(), AclOperation.READ, TOPIC, "orders")
    assert not by_rules.authorize(exchange("bob"), AclOperation.READ, TOPIC, "orders")
    assert by_rules.allowed(exchange(), AclOperation.READ, TOPIC, ["orders", "x", "orders"]) == {"orders"}
    assert by_rules.authorize_by_resource_type(exchange(), AclOperation.READ, TOPIC)
    assert not by_rules.authorize_by_resource_type(exchange("bob"), AclOperation.READ, TOPIC)
    assert operations_of(by_rules.authorized_operations(exchange(), TOPIC, "orders")) == {
        AclOperation.READ, AclOperation.DESCRIBE,
    }  # fmt: skip
    with pytest.raises(ClusterAuthorizationFailedError, match="User:ann may not ALTER the cluster"):
        by_rules.check_cluster(exchange(), AclOperation.ALTER)
    by_rules.rules = AclRules([Acl(AclResourceType.CLUSTER, CLUSTER_NAME, "User:ann", AclOperation.ALTER)])
    by_rules.check_cluster(exchange(), AclOperation.ALTER)


def test_a_decision_is_remembered_until_the_rules_change() -> None:
    rules = CountedRules([READ])
    by_rules = authorizer(rules)
    for _ in range(3):
        assert by_rules.authorize(exchange(), AclOperation.READ, TOPIC, "orders")
        assert not by_rules.authorize(exchange(), AclOperation.WRITE, TOPIC, "orders")
    assert rules.asked == 2
    # Another host, another user: another question.
    by_rules.authorize(exchange(host="10.0.0.2"), AclOperation.READ, TOPIC, "orders")
    by_rules.authorize(exchange("bob"), AclOperation.READ, TOPIC, "orders")
    assert rules.asked == 4
    by_rules.rules = AclRules([READ, READ._replace(permission=Permission.DENY)])
    assert not by_rules.authorize(exchange(), AclOperation.READ, TOPIC, "orders")
    assert not by_rules.authorize_by_resource_type(exchange(), AclOperation.READ, TOPIC)
    by_rules.rules = AclRules([READ])
    assert by_rules.authorize_by_resource_type(exchange(), AclOperation.READ, TOPIC)


def test_long_names_are_not_remembered() -> None:
    rules = CountedRules([READ._replace(resource_name="*")])
    by_rules = authorizer(rules)
    for _ in range(2):
        assert by_rules.authorize(exchange(), AclOperation.READ, TOPIC, "x" * 30_000)
    assert rules.asked == 2


def test_what_is_only_looked_at_is_neither_counted_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "braidlog.authorizer")
    by_rules = authorizer(AclRules([READ]))
    by_rules.authorized_operations(exchange(), TOPIC, "orders")
    assert (by_rules.allowed_count, by_rules.denied_count) == (0, 0)
    assert caplog.messages == []
    # What a list leaves out was denied to nobody; what is in it was granted.
    by_rules.allowed(exchange(), AclOperation.READ, TOPIC, ["orders", "x"], log_if_denied=False)
    assert (by_rules.allowed_count, by_rules.denied_count) == (1, 0)
    by_rules.allowed(exchange(), AclOperation.READ, TOPIC, ["orders", "x"])
    assert (by_rules.allowed_count, by_rules.denied_count) == (2, 1)
    assert [record.levelname for record in caplog.records] == ["DEBUG", "DEBUG", "INFO"]
    by_rules.authorize_by_resource_type(exchange("bob"), AclOperation.READ, TOPIC)
    assert by_rules.denied_count == 2
    assert " on resource = Topic:UNKNOWN:NONE " in caplog.messages[-1]


@pytest.mark.parametrize(
    ("resource_type", "error"),
    [
        (AclResourceType.TOPIC, TopicAuthorizationFailedError),
        (AclResourceType.GROUP, GroupAuthorizationFailedError),
        (AclResourceType.CLUSTER, ClusterAuthorizationFailedError),
        (AclResourceType.TRANSACTIONAL_ID, TransactionalIdAuthorizationFailedError),
        (AclResourceType.USER, DelegationTokenAuthorizationFailedError),
    ],
)
def test_each_type_of_resource_has_its_own_refusal(resource_type: AclResourceType, error: type[ProtocolError]) -> None:
    asked = authorizer_of(allow(resource_type, "mine", AclOperation.READ))
    asked.check(exchange_of("alice"), AclOperation.READ, resource_type, "mine")
    with pytest.raises(error, match="User:alice may not WRITE"):
        asked.check(exchange_of("alice"), AclOperation.WRITE, resource_type, "mine")
    Authorizer().check(exchange_of("alice"), AclOperation.WRITE, resource_type, "mine")


def test_what_may_be_done_to_the_cluster_is_for_who_may_describe_it() -> None:
    may_create = allow_cluster(AclOperation.CREATE)
    assert authorizer_of(may_create).cluster_operations(exchange_of("alice")) == 0
    both = authorizer_of(may_create, allow_cluster(AclOperation.DESCRIBE))
    bits = both.cluster_operations(exchange_of("alice"))
    assert operations_of(bits) == {AclOperation.CREATE, AclOperation.DESCRIBE}
    assert operations_of(Authorizer().cluster_operations(exchange_of("alice"))) == set(
        OPERATIONS[AclResourceType.CLUSTER]
    )


def test_very_many_names_are_decided_about_in_slices() -> None:
    async def decide() -> None:
        served = 0

        async def others() -> None:
            nonlocal served
            while True:
                served += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        names = [f"topic-{number}" for number in range(20_000)]
        asked = authorizer_of(allow_topic("topic-7", AclOperation.READ))
        allowed = await asked.allowed_in_slices(
            exchange_of("alice"), AclOperation.READ, AclResourceType.TOPIC, names, log_if_denied=False
        )
        beside.cancel()
        assert allowed == {"topic-7"}
        assert served > 1

    asyncio.run(decide())
