"""braidlog's Admin: topics, configs, records, offsets, directories, the cluster; next to confluent-kafka's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from braidlog.client import admin as ours
from braidlog.client.admin import Admin, OffsetSpec, TopicId
from braidlog.client.errors import ClosedError, NoConnection
from braidlog.core import protocol_errors as errors
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from support import confluent
from support.broker import Broker
from support.eventually import eventually
from support.groups import LastingBroker
from support.samples import BASE_TIMESTAMP_MS, plain_samples

SECONDS = 30.0


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as opened:
        yield opened


def serving(admin: Admin, name: str) -> None:
    """Wait for what the controller promised to reach the broker (a moment, in KRaft)."""
    eventually(lambda: name not in admin.describe_topics([name]).errors)


def the_broker(admin: Admin) -> int:
    (only,) = admin.describe_cluster().brokers
    return only.broker_id


# Topics


def test_a_topic_from_first_to_last(broker: Broker, admin: Admin, topic: str) -> None:
    wanted = ours.NewTopic(topic, partitions=3, replication_factor=1, config={"retention.ms": "3600000"})
    created = admin.create_topics([wanted]).raise_for_errors()[topic]
    assert (created.partitions, created.replication_factor) == (3, 1)
    assert created.config["retention.ms"] == "3600000"
    serving(admin, topic)

    described = admin.describe_topics([topic], authorized_operations=True)[topic]
    assert described.topic_id == created.topic_id
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    leader = described.partitions[0].leader
    assert {(each.leader, each.replicas, each.in_sync, each.offline) for each in described.partitions} == {
        (leader, (leader,), (leader,), ())
    }
    assert described.authorized_operations is not None
    assert ours.AclOperation.READ in described.authorized_operations
    assert topic in {each.name for each in admin.list_topics(internal=False)}

    theirs = confluent.admin(broker.bootstrap)
    assert sorted(theirs.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == [0, 1, 2]
    assert admin.delete_topics([topic]) == {topic: None}
    eventually(lambda: topic not in theirs.list_topics(timeout=SECONDS).topics)
    assert isinstance(admin.delete_topics([topic]).errors[topic], errors.UnknownTopicOrPartitionError)


def test_a_topic_by_its_id(admin: Admin, topic: str) -> None:
    first = admin.create_topics([topic])[topic].topic_id
    assert first is not None
    assert TopicId.parse(str(first)) == first
    eventually(lambda: first not in admin.describe_topics([first]).errors)
    both = admin.describe_topics([first, topic])
    assert both[first] == both[topic]

    assert admin.delete_topics([first]) == {first: None}
    second = admin.create_topics([topic])[topic].topic_id
    assert second != first
    eventually(lambda: isinstance(admin.describe_topics([first]).errors.get(first), errors.UnknownTopicIdError))
    assert isinstance(admin.delete_topics([first]).errors[first], errors.UnknownTopicIdError)
    serving(admin, topic)


def test_each_of_several_topics_has_its_own_answer(admin: Admin, topic: str) -> None:
    wanted = [
        ours.NewTopic(topic, partitions=2),
        ours.NewTopic(topic + "!"),
        ours.NewTopic(topic + "-copies", replication_factor=7),
        ours.NewTopic(topic + "-config", config={"retention.ms": "soon"}),
        ours.NewTopic(topic + "-placed", assignment=[[the_broker(admin)], [the_broker(admin)]]),
        ours.NewTopic(topic + "-astray", assignment=[[4711]]),
    ]
    results = admin.create_topics(wanted)
    assert list(results) == [each.name for each in wanted]
    assert {name.removeprefix(topic): type(error) for name, error in results.errors.items()} == {
        "!": errors.InvalidTopicError,
        "-copies": errors.InvalidReplicationFactorError,
        "-config": errors.InvalidConfigError,
        "-astray": errors.InvalidReplicaAssignmentError,
    }
    assert set(results.succeeded) == {topic, topic + "-placed"}
    assert results[topic + "-placed"].partitions == 2
    with pytest.raises(errors.InvalidTopicError, match=f"topic {topic}!: ") as refused:
        results.raise_for_errors()
    assert refused.value.__notes__[0] == "3 more of 6 failed:"
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics([topic])[topic]
    with pytest.raises(UserError, match="leave out partitions"):
        admin.create_topics([ours.NewTopic(topic, partitions=1, assignment=[[1]])])


def test_only_looking_changes_nothing(admin: Admin, topic: str) -> None:
    assert admin.create_topics([ours.NewTopic(topic, partitions=4)], validate_only=True)[topic].partitions == 4
    assert isinstance(admin.describe_topics([topic]).errors[topic], errors.UnknownTopicOrPartitionError)
    admin.create_topics([ours.NewTopic(topic, partitions=1)]).raise_for_errors()
    serving(admin, topic)
    assert admin.create_partitions({topic: 2}, validate_only=True) == {topic: None}
    resource = ours.ConfigResource.topic(topic)
    assert admin.alter_configs({resource: {"retention.ms": "1"}}, validate_only=True) == {resource: None}
    assert len(admin.describe_topics([topic])[topic].partitions) == 1


def test_partitions_are_added(broker: Broker, admin: Admin, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=2)
    missing = topic + "-none"
    grown = admin.create_partitions({topic: ours.NewPartitions(3, [[the_broker(admin)]]), missing: 3})
    assert grown[topic] is None
    assert isinstance(grown.errors[missing], errors.UnknownTopicOrPartitionError)
    theirs = confluent.admin(broker.bootstrap)
    eventually(lambda: len(theirs.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == 3)
    assert isinstance(admin.create_partitions({topic: 2}).errors[topic], errors.InvalidPartitionsError)


# Configs


def test_settings_of_a_topic(broker: Broker, admin: Admin, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    resource = ours.ConfigResource.topic(topic)
    changes = [
        ours.ConfigChange("retention.ms", "1234567"),
        ours.ConfigChange("cleanup.policy", "compact", ours.Alter.APPEND),
    ]
    assert admin.alter_configs({resource: changes}) == {resource: None}

    def entries() -> dict[str, ours.ConfigEntry]:
        return admin.describe_configs([resource], documentation=True)[resource]

    eventually(lambda: entries()["retention.ms"].value == "1234567")
    found = entries()
    retention = found["retention.ms"]
    assert (retention.source, retention.type) == (ours.ConfigSource.DYNAMIC_TOPIC, ours.ConfigType.LONG)
    assert not retention.is_default
    assert not retention.is_sensitive
    assert retention.documentation
    assert retention.synonyms[0] == ours.configs.Synonym("retention.ms", "1234567", ours.ConfigSource.DYNAMIC_TOPIC)
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["segment.jitter.ms"].is_default

    # What another client changes is seen here, and the other way round.
    theirs = confluent.admin(broker.bootstrap)
    set_it = ConfigEntry("max.message.bytes", "4321", incremental_operation=AlterConfigOpType.SET)
    their_resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[set_it])
    theirs.incremental_alter_configs([their_resource])[their_resource].result(SECONDS)
    eventually(lambda: entries()["max.message.bytes"].value == "4321")
    assert theirs.describe_configs([their_resource])[their_resource].result(SECONDS)["retention.ms"].value == "1234567"

    assert admin.alter_configs({resource: {"retention.ms": None}}) == {resource: None}
    eventually(lambda: entries()["retention.ms"].value == "604800000")
    named = admin.describe_configs([resource], names=["retention.ms"], synonyms=False)[resource]
    assert list(named) == ["retention.ms"]
    assert named["retention.ms"].synonyms == ()


def test_settings_of_brokers(admin: Admin) -> None:
    one = ours.ConfigResource.broker(the_broker(admin))
    every = ours.ConfigResource.all_brokers()
    name = "log.cleaner.backoff.ms"
    assert admin.alter_configs({one: {name: "14000"}, every: {name: "13000"}}).errors == {}

    def source() -> ours.ConfigSource:
        return admin.describe_configs([one])[one][name].source

    eventually(lambda: source() == ours.ConfigSource.DYNAMIC_BROKER)
    eventually(lambda: admin.describe_configs([every])[every][name].value == "13000")
    assert admin.alter_configs({one: {name: None}}).errors == {}
    eventually(lambda: source() == ours.ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert admin.alter_configs({every: {name: None}}).errors == {}
    eventually(lambda: source() == ours.ConfigSource.DEFAULT)


def test_settings_that_cannot_be(admin: Admin, topic: str) -> None:
    away = ours.ConfigResource.broker(4711)
    missing = ours.ConfigResource.topic(topic)
    described = admin.describe_configs([away, missing])
    assert "there is no broker 4711" in str(described.errors[away])
    assert isinstance(described.errors[missing], errors.UnknownTopicOrPartitionError)
    admin.create_topics([topic])[topic]
    serving(admin, topic)
    wrong = admin.alter_configs({missing: {"retention.ms": "soon"}}).errors[missing]
    assert isinstance(wrong, errors.InvalidConfigError)
    assert "Admin.describe_configs" in str(wrong)
    with pytest.raises(UserError, match="nothing to change"):
        admin.alter_configs({missing: {}})
    with pytest.raises(UserError, match="named by its id"):
        admin.describe_configs([ours.ConfigResource(ours.ResourceType.BROKER, "one")])


# Records and offsets


def test_offsets_and_deleted_records(broker: Broker, admin: Admin, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=2)
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(10))
    first, second, missing = (TopicPartition(topic, number) for number in (0, 1, 9))

    def offset(spec: int, **more: Any) -> ours.ListedOffset:
        return admin.list_offsets({first: spec}, **more)[first]

    assert offset(OffsetSpec.EARLIEST).offset == 0
    assert offset(OffsetSpec.LATEST).offset == 10
    assert offset(OffsetSpec.LATEST, isolation=ours.IsolationLevel.READ_COMMITTED).offset == 10
    newest = offset(OffsetSpec.MAX_TIMESTAMP)
    assert newest.timestamp_ms >= BASE_TIMESTAMP_MS
    assert offset(newest.timestamp_ms) == newest
    assert offset(newest.timestamp_ms + 1).offset == -1
    several = admin.list_offsets({first: OffsetSpec.LATEST, second: OffsetSpec.LATEST, missing: OffsetSpec.LATEST})
    assert [several[each].offset for each in (first, second)] == [10, 0]
    assert "has no partition 9; it has 2" in str(several.errors[missing])

    deleted = admin.delete_records({first: 4, second: 1})
    assert deleted[first] == 4
    assert isinstance(deleted.errors[second], errors.OffsetOutOfRangeError)
    assert offset(OffsetSpec.EARLIEST).offset == 4
    assert admin.delete_records({first: ours.ALL_RECORDS}) == {first: 10}
    assert offset(OffsetSpec.EARLIEST).offset == 10


# The cluster


def test_the_cluster_and_what_its_broker_speaks(broker: Broker, admin: Admin) -> None:
    cluster = admin.describe_cluster(authorized_operations=True)
    (only,) = cluster.brokers
    assert (only.host, only.port) == ("127.0.0.1", broker.port)
    assert cluster.controller_id == only.broker_id
    assert cluster.authorized_operations is not None
    theirs = confluent.admin(broker.bootstrap)
    seen = theirs.describe_cluster().result(SECONDS)
    assert (seen.cluster_id, seen.controller.id) == (cluster.cluster_id, cluster.controller_id)

    versions = admin.broker_api_versions()[only.broker_id]
    produce = next(each for each in versions if each.name == "Produce")
    assert produce.api_key == 0
    assert produce.oldest <= 3 < produce.newest
    features = admin.describe_features()
    assert features.epoch is not None
    for name, level in features.finalized.items():
        assert level.highest <= features.supported[name].highest


def test_directories(broker: Broker, admin: Admin, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(10))
    place = TopicPartition(topic, 0)
    broker_id = the_broker(admin)
    found = admin.describe_log_dirs([broker_id, 4711], partitions=[place])
    (directory,) = found[broker_id]
    assert "there is no broker 4711" in str(found.errors[4711])
    assert directory.path == str(broker.data_dir)
    assert directory.error is None
    assert set(directory.replicas) == {place}
    assert directory.replicas[place].size_bytes > 100
    assert not directory.replicas[place].is_future
    assert directory.total_bytes is not None
    assert directory.usable_bytes is not None
    assert place in admin.describe_log_dirs()[broker_id][0].replicas


def test_reassignments_and_elections(broker: Broker, admin: Admin, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=2)
    first, second, missing = (TopicPartition(topic, number) for number in (0, 1, 9))
    results = admin.alter_partition_reassignments({first: None, second: [4711], missing: [the_broker(admin)]})
    assert {place: type(error) for place, error in results.errors.items()} == {
        first: errors.NoReassignmentInProgressError,
        second: errors.InvalidReplicaAssignmentError,
        missing: errors.UnknownTopicOrPartitionError,
    }
    assert admin.alter_partition_reassignments({first: [the_broker(admin)]}) == {first: None}
    eventually(lambda: admin.list_partition_reassignments([first]) == {})
    assert admin.list_partition_reassignments() == {}
    elected = admin.elect_leaders([first, missing])
    assert isinstance(elected.errors[first], errors.ElectionNotNeededError)
    assert isinstance(elected.errors[missing], errors.UnknownTopicOrPartitionError)
    assert admin.elect_leaders() == {}


def test_nobody_subscribes_to_metrics_of_clients(admin: Admin) -> None:
    assert admin.list_client_metrics_resources() == []


# The client itself


def test_a_broker_without_access_control_is_told_of(admin: Admin) -> None:
    rule = ours.Acl(ours.AclResourceType.TOPIC, "t", "User:a", ours.AclOperation.READ)
    calls: list[Callable[[], object]] = [
        lambda: admin.describe_acls(),
        lambda: admin.create_acls([rule])[rule],
        lambda: admin.delete_acls([rule])[rule],
    ]
    for call in calls:
        with pytest.raises(errors.SecurityDisabledError, match=r"No Authorizer is configured.*authorizer\.class\.name"):
            call()


def test_what_confluent_creates_is_described_here(broker: Broker, admin: Admin, topic: str) -> None:
    theirs = confluent.admin(broker.bootstrap)
    theirs.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)
    serving(admin, topic)
    assert len(admin.describe_topics([topic])[topic].partitions) == 2
    admin.create_topics([topic + "-b"])[topic + "-b"]
    with pytest.raises(KafkaException):
        theirs.create_topics([NewTopic(topic + "-b", 1, 1)])[topic + "-b"].result(SECONDS)


def test_the_documented_example_runs(broker: Broker, admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/client/admin.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    assert "localhost:9092" in example
    exec(compile(example.replace("localhost:9092", broker.bootstrap), "admin.md", "exec"), {})
    assert capsys.readouterr().out == "0\n"
    admin.delete_topics(["orders"]).raise_for_errors()


def test_threads_share_an_admin(admin: Admin, topic: str) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            name = f"{topic}-{number}"
            admin.create_topics([name]).raise_for_errors()
            serving(admin, name)
            admin.delete_topics([name]).raise_for_errors()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert failures == []


def test_nothing_is_connected_to_before_the_first_call_nor_after_the_end() -> None:
    with Admin({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 300}) as admin:
        with pytest.raises(NoConnection, match=r"127\.0\.0\.1:1"):
            admin.list_topics()
        with pytest.raises(NoConnection):
            admin.create_topics(["a", "b"])
    with pytest.raises(ClosedError, match="make a new one"):
        admin.list_topics()
    with pytest.raises(UserError, match="bootstrap_servers"):
        Admin()


def test_a_broker_that_restarts_is_waited_for(target_kind: str, tmp_path: Path, topic: str) -> None:
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with Admin(bootstrap_servers=lasting.bootstrap, default_api_timeout=150.0) as admin:
        with lasting.life() as first:
            admin.create_topics([topic]).raise_for_errors()
            serving(admin, topic)
            first.kill()
            with pytest.raises(NoConnection):
                admin.within(0.5).list_topics()
        answers: list[list[ours.ListedTopic]] = []
        asking = threading.Thread(target=lambda: answers.append(admin.list_topics()))
        asking.start()
        with lasting.life():
            asking.join(150.0)
            assert [[each.name for each in answer] for answer in answers] == [[topic]]
