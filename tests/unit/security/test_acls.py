"""Rules of access, as a model without an index decides, and as Kafka documents them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.security.acls import (
    AUTHORIZED_OPERATIONS_OMITTED,
    CLUSTER_RESOURCE,
    OPERATIONS,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    AclRules,
    PatternType,
    Permission,
    Resource,
    applies,
    in_words,
    operations_of,
    read_as,
    written,
)

ORDERS = Resource(AclResourceType.TOPIC, "orders")
READ_ORDERS = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)


def may(rules: AclRules, operation: AclOperation, resource: Resource = ORDERS, who: str = "User:ann") -> bool:
    return rules.decide(who, "10.0.0.1", operation, resource).allowed


def test_nothing_is_allowed_without_a_rule() -> None:
    decision = AclRules([]).decide("User:ann", "10.0.0.1", AclOperation.READ, ORDERS)
    assert decision == (False, None, "no rule is about this resource")


def test_everything_is_allowed_where_the_setting_says_so_and_no_rule_is_about_it() -> None:
    rules = AclRules([READ_ORDERS], allow_if_none_found=True)
    assert may(rules, AclOperation.WRITE, Resource(AclResourceType.TOPIC, "payments"))
    assert not may(rules, AclOperation.WRITE)
    assert not may(rules, AclOperation.READ, who="User:bob")


def test_a_super_user_may_do_what_is_denied_to_all() -> None:
    rules = AclRules(
        [READ_ORDERS._replace(principal="User:*", permission=Permission.DENY, operation=AclOperation.ALL)],
        frozenset({"User:root"}),
    )
    assert may(rules, AclOperation.WRITE, who="User:root")
    assert not may(rules, AclOperation.READ)


def test_a_rule_that_denies_outweighs_one_that_allows() -> None:
    denied = READ_ORDERS._replace(resource_name="ord", pattern_type=PatternType.PREFIXED, permission=Permission.DENY)
    decision = AclRules([READ_ORDERS, denied]).decide("User:ann", "10.0.0.1", AclOperation.READ, ORDERS)
    assert decision == (False, denied, "a rule denies it")


@pytest.mark.parametrize("allowed", ["READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL"])
def test_who_may_change_a_thing_may_see_it(allowed: str) -> None:
    rules = AclRules([READ_ORDERS._replace(operation=AclOperation[allowed])])
    assert may(rules, AclOperation.DESCRIBE)


def test_being_denied_to_read_does_not_deny_to_see() -> None:
    denied = READ_ORDERS._replace(permission=Permission.DENY)
    allowed = READ_ORDERS._replace(operation=AclOperation.DESCRIBE)
    assert may(AclRules([denied, allowed]), AclOperation.DESCRIBE)


def test_who_may_alter_settings_may_see_them() -> None:
    rules = AclRules([READ_ORDERS._replace(operation=AclOperation.ALTER_CONFIGS)])
    assert may(rules, AclOperation.DESCRIBE_CONFIGS)
    assert not may(rules, AclOperation.DESCRIBE)


def test_a_host_is_compared_as_text() -> None:
    rules = AclRules([READ_ORDERS._replace(host="10.0.0.2")])
    assert not may(rules, AclOperation.READ)
    assert rules.decide("User:ann", "10.0.0.2", AclOperation.READ, ORDERS).allowed


def test_the_cluster_has_one_name() -> None:
    rules = AclRules([Acl(AclResourceType.CLUSTER, "kafka-cluster", "User:ann", AclOperation.ALTER)])
    assert may(rules, AclOperation.ALTER, CLUSTER_RESOURCE)


def test_some_topic_may_be_written() -> None:
    write = READ_ORDERS._replace(operation=AclOperation.WRITE)
    deny = write._replace(permission=Permission.DENY)
    prefix = deny._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
    prefixed = prefix._replace(permission=Permission.ALLOW)

    def some(*acls: Acl, default: bool = False) -> bool:
        rules = AclRules(acls, frozenset({"User:root"}), allow_if_none_found=default)
        assert rules.decide_by_type("User:root", "h", AclOperation.WRITE, AclResourceType.TOPIC)
        return rules.decide_by_type("User:ann", "h", AclOperation.WRITE, AclResourceType.TOPIC)

    assert not some()
    assert some(default=True)
    assert some(write)
    assert not some(write, deny)
    assert not some(write, prefix)
    assert some(prefixed)
    assert some(prefixed, deny)
    assert not some(prefixed, prefix)
    assert some(write._replace(resource_name="*"), deny)
    assert not some(write, deny._replace(resource_name="*"), default=True)
    assert not some(write._replace(principal="User:bob"))


def test_a_filter_that_matches_finds_everything_that_applies() -> None:
    rules = [
        READ_ORDERS,
        READ_ORDERS._replace(resource_name="*"),
        READ_ORDERS._replace(resource_name="or", pattern_type=PatternType.PREFIXED),
        READ_ORDERS._replace(resource_name="x"),
    ]
    found = AclFilter(resource_name="orders", pattern_type=PatternType.MATCH)
    assert [found.matches(each) for each in rules] == [True, True, True, False]
    literal = AclFilter(resource_name="*", pattern_type=PatternType.LITERAL)
    assert [literal.matches(each) for each in rules] == [False, True, False, False]
    assert all(AclFilter().matches(each) for each in rules)
    assert not AclFilter(permission=Permission.DENY).matches(READ_ORDERS)


NAMES = st.text("ab*", min_size=1, max_size=3)
ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP]),
    resource_name=NAMES,
    principal=st.sampled_from(["User:ann", "User:bob", "User:*"]),
    operation=st.sampled_from([AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL]),
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
    host=st.sampled_from(["*", "h", "i"]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)


@given(st.lists(ACLS, max_size=12), NAMES, st.booleans())
def test_the_index_finds_what_a_look_at_every_rule_finds(acls: list[Acl], name: str, default: bool) -> None:
    about = [each for each in acls if each.resource_type == AclResourceType.TOPIC and applies(each.pattern, name)]

    def matching(permission: Permission, operations: set[AclOperation]) -> bool:
        return any(
            each.permission == permission
            and each.principal in ("User:ann", "User:*")
            and each.host in ("*", "h")
            and each.operation in operations | {AclOperation.ALL}
            for each in about
        )

    allowing = {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE}
    expected = default
    if about:
        expected = not matching(Permission.DENY, {AclOperation.DESCRIBE}) and matching(Permission.ALLOW, allowing)
    rules = AclRules(acls, allow_if_none_found=default)
    resource = Resource(AclResourceType.TOPIC, name)
    assert rules.decide("User:ann", "h", AclOperation.DESCRIBE, resource).allowed == expected


def test_bits_are_operations_by_their_number() -> None:
    group = OPERATIONS[AclResourceType.GROUP]
    assert operations_of(sum(1 << each for each in group)) == set(group)
    assert operations_of(0) == frozenset()
    assert operations_of(0b11) == frozenset()


def test_a_broker_that_does_not_say_says_nothing() -> None:
    assert operations_of(AUTHORIZED_OPERATIONS_OMITTED) is None


def test_a_number_of_a_later_version_is_unknown() -> None:
    assert AclOperation(99) is AclOperation.UNKNOWN


@given(
    before=st.lists(ACLS, max_size=8),
    after=st.lists(ACLS, max_size=8),
    name=NAMES,
    everyone=st.booleans(),
)
def test_rules_that_are_replaced_are_as_if_made_anew(
    before: list[Acl], after: list[Acl], name: str, everyone: bool
) -> None:
    first = AclRules(before, allow_if_none_found=everyone)
    kept = first.acls
    changed = {each.pattern for each in (*before[::2], *after)}
    wanted = [*(each for each in before if each.pattern not in changed), *after]
    replaced = first.replacing({each: [acl for acl in after if acl.pattern == each] for each in changed})
    made = AclRules(wanted, allow_if_none_found=everyone)
    assert replaced.acls == made.acls
    assert replaced.count == len(made.acls)
    assert set(replaced.patterns()) == set(made.patterns()) == {each.pattern for each in wanted}
    about = Resource(AclResourceType.TOPIC, name)
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE):
        assert may(replaced, operation, about) == may(made, operation, about)
    assert first.acls == kept


@pytest.mark.parametrize("kind", [AclOperation, AclResourceType, PatternType, Permission])
def test_names_are_read_as_they_are_written(kind: type[AclOperation]) -> None:
    for each in kind:
        assert read_as(kind, written(each)) is each
        assert read_as(kind, each.name) is each
        assert read_as(kind, each.name.lower().replace("_", "-")) is each
    assert read_as(kind, "Fly") is None


def test_names_are_kafkas() -> None:
    assert written(AclResourceType.TRANSACTIONAL_ID) == "TransactionalId"
    assert written(AclOperation.CLUSTER_ACTION) == "ClusterAction"
    assert written(AclOperation.READ) == "Read"
    assert written(Permission.ALLOW) == "Allow"


@pytest.mark.parametrize(
    ("peer", "ruled", "fits"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::1", "::1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::a", "2001:db8:0:0:0:0:0:a", True),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0", True),
        ("::1", "0:0:0:0:0:0:0:2", False),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_an_address_as_kafka_writes_it(peer: str, ruled: str, fits: bool) -> None:
    rules = AclRules([READ_ORDERS._replace(host=ruled)])
    assert rules.decide("User:ann", peer, AclOperation.READ, ORDERS).allowed == fits
    assert rules.decide_by_type("User:ann", peer, AclOperation.READ, AclResourceType.TOPIC) == fits


def test_a_rule_in_words() -> None:
    assert in_words(READ_ORDERS) == "allow User:ann from * to Read topic 'orders'"
    denied = READ_ORDERS._replace(
        permission=Permission.DENY, host="10.0.0.1", resource_name="or", pattern_type=PatternType.PREFIXED
    )
    assert in_words(denied) == "deny User:ann from 10.0.0.1 to Read every topic whose name begins with 'or'"
