"""braidlog's Admin on what only Apache Kafka serves so far: access control, quotas, SCRAM users, tokens, moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import admin as theirs

from braidlog.client import admin as ours
from braidlog.client.admin import (
    ANYBODY,
    DEFAULT,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    Admin,
    OffsetSpec,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from braidlog.client.errors import AuthenticationFailed
from braidlog.core import protocol_errors as errors
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from support import confluent
from support.eventually import eventually
from support.samples import plain_samples
from support.secured_kafka import SecuredKafka

pytestmark = pytest.mark.peer

SECONDS = 30.0


@pytest.fixture(scope="module")
def kafka(apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    running = SecuredKafka(tmp_path_factory.mktemp("secured"))
    with running.life():
        yield running


@pytest.fixture(scope="module")
def both(kafka: SecuredKafka) -> Iterator[ExitStack]:
    """A second broker beside the first; closing the stack kills it."""
    with ExitStack() as second:
        running = second.enter_context(kafka.second_life())
        second.callback(running.kill)
        yield second


@pytest.fixture
def admin(kafka: SecuredKafka) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka.bootstrap) as opened:
        yield opened


# Access control


def test_rules_are_added_found_and_deleted(kafka: SecuredKafka, admin: Admin, topic: str) -> None:
    read = Acl(AclResourceType.TOPIC, topic, "User:ann", AclOperation.READ)
    prefixed = Acl(
        AclResourceType.TOPIC, topic[:8], "User:ann", AclOperation.WRITE, pattern_type=ours.PatternType.PREFIXED
    )
    denied = Acl(AclResourceType.GROUP, topic, "User:bob", AclOperation.READ, ours.Permission.DENY, "10.0.0.1")
    whole = Acl(AclResourceType.CLUSTER, ours.CLUSTER_NAME, f"User:{topic}", AclOperation.ALTER)
    assert admin.create_acls([read, prefixed, denied, whole]).errors == {}
    eventually(lambda: set(admin.describe_acls()) >= {read, prefixed, denied, whole})
    assert admin.describe_acls(AclFilter(principal="User:bob")) == [denied]
    on_topic = AclFilter(AclResourceType.TOPIC, topic)
    assert admin.describe_acls(on_topic) == [read]
    # Whatever applies to a topic of that name, the prefix too.
    assert admin.describe_acls(on_topic._replace(pattern_type=ours.PatternType.MATCH)) == sorted([read, prefixed])

    their_admin = confluent.admin(kafka.bootstrap)
    their_filter = theirs.AclBindingFilter(
        theirs.ResourceType.TOPIC, topic, theirs.ResourcePatternType.LITERAL, None, None,
        theirs.AclOperation.ANY, theirs.AclPermissionType.ANY,
    )  # fmt: skip
    (seen,) = their_admin.describe_acls(their_filter).result(SECONDS)
    assert (seen.principal, seen.operation.name, seen.host) == ("User:ann", "READ", "*")
    their_rule = theirs.AclBinding(
        theirs.ResourceType.TOPIC, topic, theirs.ResourcePatternType.LITERAL, "User:eve", "*",
        theirs.AclOperation.DESCRIBE, theirs.AclPermissionType.ALLOW,
    )  # fmt: skip
    their_admin.create_acls([their_rule])[their_rule].result(SECONDS)
    mine = Acl(AclResourceType.TOPIC, topic, "User:eve", AclOperation.DESCRIBE)
    eventually(lambda: mine in admin.describe_acls(on_topic))

    deleted = admin.delete_acls([on_topic, denied, AclFilter(principal="User:nobody")])
    assert deleted[on_topic] == tuple(sorted([read, mine]))
    assert deleted[denied] == (denied,)
    assert deleted[AclFilter(principal="User:nobody")] == ()
    eventually(lambda: admin.describe_acls(on_topic) == [])


def test_rules_that_cannot_be() -> None:
    with Admin(bootstrap_servers="nowhere:1") as admin:
        rule = Acl(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ)
        for wrong, reported in (
            (rule._replace(principal="ann"), "such as User:ann"),
            (rule._replace(resource_type=AclResourceType.ANY), "one type of resource"),
            (rule._replace(operation=AclOperation.ANY), "one operation"),
            (rule._replace(permission=ours.Permission.ANY), "ALLOW or DENY"),
            (rule._replace(pattern_type=ours.PatternType.MATCH), "LITERAL or PREFIXED"),
        ):
            with pytest.raises(UserError, match=reported):
                admin.create_acls([wrong])


# Quotas


def test_quotas_of_every_kind_of_entity(admin: Admin, topic: str) -> None:
    user, client = QuotaEntity(user=topic), QuotaEntity(client_id=topic)
    pair = QuotaEntity(user=topic, client_id=DEFAULT)
    everybody = QuotaEntity(user=DEFAULT)
    address = QuotaEntity(ip="10.1.2.3")
    changes = {
        user: {QuotaKey.PRODUCER_BYTE_RATE: 1000.0, QuotaKey.REQUEST_PERCENTAGE: 12.5},
        client: {QuotaKey.CONSUMER_BYTE_RATE: 2000.0},
        pair: {QuotaKey.CONTROLLER_MUTATION_RATE: 3.0},
        everybody: {QuotaKey.PRODUCER_BYTE_RATE: 4000.0},
        address: {QuotaKey.CONNECTION_CREATION_RATE: 5.0},
    }
    assert admin.alter_client_quotas(changes, validate_only=True).errors == {}
    assert admin.alter_client_quotas(changes).errors == {}
    eventually(lambda: set(admin.describe_client_quotas()) >= set(changes))
    found = admin.describe_client_quotas()
    assert found[user] == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert set(admin.describe_client_quotas(QuotaFilter(user=topic))) == {user, pair}
    assert set(admin.describe_client_quotas(QuotaFilter(user=topic, strict=True))) == {user}
    assert set(admin.describe_client_quotas(QuotaFilter(user=DEFAULT))) == {everybody}
    assert set(admin.describe_client_quotas(QuotaFilter(ip=ANYBODY))) == {address}

    wrong = admin.alter_client_quotas({user: {"no_such_quota": 1.0}, client: {QuotaKey.CONSUMER_BYTE_RATE: None}})
    assert isinstance(wrong.errors[user], errors.InvalidRequestError)
    eventually(lambda: client not in admin.describe_client_quotas())
    assert admin.alter_client_quotas({each: dict.fromkeys(changes[each]) for each in changes}).errors == {}
    eventually(lambda: not set(admin.describe_client_quotas()) & set(changes))
    with pytest.raises(UserError, match="a quota needs an entity"):
        admin.alter_client_quotas({QuotaEntity(): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})


# SCRAM users and what they may do


def logged_in(kafka: SecuredKafka, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Admin:
    return Admin(
        bootstrap_servers=kafka.secured,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password,
        default_api_timeout=20.0,
    )


@pytest.mark.parametrize("mechanism", [ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512])
def test_a_user_logs_in_with_the_password_that_was_salted_here(
    kafka: SecuredKafka, admin: Admin, topic: str, mechanism: ScramMechanism
) -> None:
    name = mechanism.name.replace("_", "-")
    admin.create_topics([topic]).raise_for_errors()
    assert admin.alter_scram_users([ScramUpsertion(topic, "pä$$,=word", mechanism, 8192)]) == {topic: None}
    eventually(lambda: topic in admin.describe_scram_users())
    assert admin.describe_scram_users([topic])[topic] == (ScramCredential(mechanism, 8192),)
    with logged_in(kafka, topic, "pä$$,=word", name) as user:
        # Without a rule nothing of the topic can be seen.
        refused = user.describe_topics([topic]).errors[topic]
        assert isinstance(refused, errors.TopicAuthorizationFailedError)
        assert "ask the administrator of the cluster" in str(refused)
        admin.create_acls([Acl(AclResourceType.TOPIC, topic, f"User:{topic}", AclOperation.DESCRIBE)])
        eventually(lambda: not user.describe_topics([topic]).errors)
    login = {
        "bootstrap.servers": kafka.secured,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": name,
        "sasl.username": topic,
        "sasl.password": "pä$$,=word",
        "group.id": topic,
    }
    consumer = Consumer(login)
    assert topic in consumer.list_topics(topic, timeout=SECONDS).topics
    consumer.close()
    with logged_in(kafka, topic, "wrong", name) as stranger, pytest.raises(AuthenticationFailed):
        stranger.list_topics()

    both_ways = admin.alter_scram_users([ScramDeletion(topic, mechanism), ScramDeletion("no-such-user", mechanism)])
    assert both_ways[topic] is None
    assert isinstance(both_ways.errors["no-such-user"], errors.ResourceNotFoundError)
    eventually(lambda: topic not in admin.describe_scram_users())
    assert isinstance(admin.describe_scram_users([topic]).errors[topic], errors.ResourceNotFoundError)


def test_what_the_other_admin_salts_is_described_here(kafka: SecuredKafka, admin: Admin, topic: str) -> None:
    their_admin = confluent.admin(kafka.bootstrap)
    info = theirs.ScramCredentialInfo(theirs.ScramMechanism.SCRAM_SHA_256, 10_000)
    change = theirs.UserScramCredentialUpsertion(topic, info, b"password")
    their_admin.alter_user_scram_credentials([change])[topic].result(SECONDS)
    wanted = (ScramCredential(ScramMechanism.SCRAM_SHA_256, 10_000),)
    eventually(lambda: admin.describe_scram_users().get(topic) == wanted)
    with logged_in(kafka, topic, "password", "SCRAM-SHA-256") as user:
        assert user.describe_cluster().brokers
    with pytest.raises(UserError, match="between 4096 and 16384"):
        admin.alter_scram_users([ScramUpsertion(topic, "p", iterations=100)])
    with pytest.raises(UserError, match="at least one character"):
        admin.alter_scram_users([ScramUpsertion(topic, "")])
    assert "password" not in repr(ScramUpsertion(topic, "password"))


def test_a_delegation_token_from_first_to_last(kafka: SecuredKafka, admin: Admin, topic: str) -> None:
    admin.alter_scram_users([ScramUpsertion(topic, "password")]).raise_for_errors()
    eventually(lambda: topic in admin.describe_scram_users())
    with pytest.raises(errors.DelegationTokenRequestNotAllowedError, match="connect with SASL"):
        admin.create_delegation_token()
    me = ours.Principal("User", topic)
    with logged_in(kafka, topic, "password") as user:
        token = user.create_delegation_token(renewers=[ours.Principal("User", "helper")], max_lifetime_ms=3_600_000)
        assert (token.owner, token.requester) == (me, me)
        eventually(lambda: [each.token_id for each in user.describe_delegation_tokens([me])] == [token.token_id])
        (seen,) = user.describe_delegation_tokens()
        assert seen == token
        assert token.expires_ms <= user.renew_delegation_token(token.hmac) <= token.ends_ms
        user.expire_delegation_token(token.hmac)
        eventually(lambda: user.describe_delegation_tokens() == [])
        with pytest.raises(errors.DelegationTokenNotFoundError):
            user.renew_delegation_token(b"nobody's")


# Features, client metrics, directories


def test_features_and_client_metrics(admin: Admin, topic: str) -> None:
    level = admin.describe_features().finalized["metadata.version"].highest
    refused = admin.update_features({"metadata.version": 999, "no.such.feature": 1}).errors
    assert {type(error) for error in refused.values()} == {errors.InvalidUpdateVersionError}
    down = ours.FeatureUpdate(level - 1, ours.UpgradeType.SAFE_DOWNGRADE)
    assert set(admin.update_features({"metadata.version": down}, validate_only=True)) == {"metadata.version"}
    assert admin.describe_features().finalized["metadata.version"].highest == level

    metrics = ours.ConfigResource.client_metrics(topic)
    group = ours.ConfigResource.group(topic)
    changed = admin.alter_configs({metrics: {"interval.ms": "10000"}, group: {"consumer.session.timeout.ms": "50000"}})
    assert changed[metrics] is None
    # Settings of groups came with Kafka 4.0.
    assert isinstance(changed.errors[group], errors.InvalidRequestError)
    eventually(lambda: topic in admin.list_client_metrics_resources())
    eventually(lambda: admin.describe_configs([metrics])[metrics]["interval.ms"].value == "10000")
    logger = ours.ConfigResource.broker_logger(1)
    assert admin.alter_configs({logger: {"kafka.server.KafkaApis": "DEBUG"}}) == {logger: None}
    assert admin.describe_configs([logger])[logger]["kafka.server.KafkaApis"].value == "DEBUG"


def test_a_copy_moves_to_another_directory(kafka: SecuredKafka, admin: Admin, topic: str) -> None:
    admin.create_topics([ours.NewTopic(topic, assignment=[[1]])]).raise_for_errors()
    place = TopicPartition(topic, 0)
    replica = ours.Replica(topic, 0, 1)

    def directory() -> str:
        found = admin.describe_log_dirs([1], partitions=[place])[1]
        holding = [each.path for each in found if place in each.replicas and not each.replicas[place].is_future]
        return holding[0] if len(holding) == 1 else ""

    eventually(lambda: directory() != "")
    before = directory()
    (other,) = (str(each) for each in kafka.directories if str(each) != before)
    assert admin.alter_replica_log_dirs({replica: other}) == {replica: None}
    eventually(lambda: directory() == other)
    wrong = admin.alter_replica_log_dirs({replica: "/no/such/place", ours.Replica(topic, 0, 4711): other})
    assert isinstance(wrong.errors[replica], errors.LogDirNotFoundError)
    assert "there is no broker 4711" in str(wrong.errors[ours.Replica(topic, 0, 4711)])


# Two brokers


def leader_of(admin: Admin, topic: str) -> int | None:
    return admin.describe_topics([topic])[topic].partitions[0].leader


def test_a_partition_moves_and_is_followed(kafka: SecuredKafka, both: ExitStack, admin: Admin, topic: str) -> None:
    eventually(lambda: len(admin.describe_cluster().brokers) == 2)
    assert [each.rack for each in admin.describe_cluster().brokers] == [None, "second"]
    admin.create_topics([ours.NewTopic(topic, assignment=[[1]])]).raise_for_errors()
    place = TopicPartition(topic, 0)
    eventually(lambda: place in admin.list_offsets({place: OffsetSpec.LATEST}).succeeded)
    sender = Producer({"bootstrap.servers": kafka.bootstrap})
    confluent.send(sender, topic, plain_samples(5))

    assert admin.alter_partition_reassignments({place: [1, 2]}) == {place: None}
    eventually(lambda: admin.describe_topics([topic])[topic].partitions[0].in_sync == (1, 2))
    assert admin.alter_partition_reassignments({place: [2, 1]}) == {place: None}
    eventually(lambda: admin.describe_topics([topic])[topic].partitions[0].replicas == (2, 1))
    assert leader_of(admin, topic) == 1
    assert admin.elect_leaders([place]) == {place: None}
    eventually(lambda: leader_of(admin, topic) == 2)
    # The leader is another broker now; nobody told this admin.
    assert admin.list_offsets({place: OffsetSpec.LATEST})[place].offset == 5
    assert admin.delete_records({place: 2}) == {place: 2}
    assert set(admin.describe_log_dirs(partitions=[place])) == {1, 2}
    assert set(admin.broker_api_versions()) == {1, 2}
    with pytest.raises(KafkaException):
        confluent.admin(kafka.bootstrap).delete_topics([topic + "-none"])[topic + "-none"].result(SECONDS)


def test_a_move_that_cannot_end_is_cancelled(both: ExitStack, admin: Admin, topic: str) -> None:
    admin.create_topics([ours.NewTopic(topic, assignment=[[1], [2]])]).raise_for_errors()
    place, lost = TopicPartition(topic, 0), TopicPartition(topic, 1)
    eventually(lambda: not admin.describe_topics([topic]).errors)
    both.close()
    assert admin.alter_partition_reassignments({place: [2]}) == {place: None}
    eventually(lambda: place in admin.list_partition_reassignments())
    assert admin.list_partition_reassignments([place]) == {place: ours.Reassignment((2, 1), (2,), (1,))}
    assert admin.alter_partition_reassignments({place: None}) == {place: None}
    eventually(lambda: admin.list_partition_reassignments([place]) == {})
    # Nobody leads what only the lost broker held; it is told of soon, not after the whole deadline.
    eventually(lambda: admin.describe_topics([topic])[topic].partitions[1].leader is None)
    reported = admin.list_offsets({place: OffsetSpec.LATEST, lost: OffsetSpec.LATEST})
    assert reported[place].offset == 0
    assert isinstance(reported.errors[lost], errors.LeaderNotAvailableError)
