"""The stream reader asked as Spark asks it, without Spark, on braidlog and on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from braidlog import Admin, Consumer, Producer, TopicPartition
from braidlog.client.admin import Acl, AclOperation, AclResourceType, ScramUpsertion
from braidlog.client.admin.topics import NewTopic
from braidlog.core.errors import UserError
from braidlog.testing import Broker
from pyspark_braidlog.source.data_loss import DataLoss
from pyspark_braidlog.source.stream import StreamReader, new_stream_reader
from support.eventually import eventually
from support.secured_kafka import SecuredKafka

SCHEMA = StructType([StructField("value", BinaryType())])


class Query:
    """Asks in Spark's order, and keeps what Spark keeps: the end of the last batch that is done."""

    def __init__(self, servers: str, **options: str) -> None:
        self._options = {"kafka.bootstrap.servers": servers} | {
            name.replace("__", "."): value for name, value in options.items()
        }
        self.done: dict[str, Any] | None = None
        self.reader = self._new_reader()

    def _new_reader(self) -> StreamReader:
        return new_stream_reader(self._options, SCHEMA)

    def restart(self, **options: str) -> None:
        self.reader.stop()
        self._options |= options
        self.reader = self._new_reader()

    def batch(self) -> list[int] | None:
        """What the next one reads; None if there is none."""
        start = self.done or self._kept(self.reader.initialOffset())
        end = self._kept(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if end == start:
            return None
        if self.done is None:
            start = self._kept(self.reader.initialOffset())
        values = [
            int(value.as_py())
            for partition in self.reader.partitions(start, end)
            for rows in self.reader.read(partition)
            for value in rows["value"]
        ]
        self.done = end
        return sorted(values)

    def _kept(self, offset: dict[str, Any]) -> dict[str, Any]:
        kept = json.loads(json.dumps(offset))
        assert isinstance(kept, dict)
        return kept


@pytest.fixture(scope="module")
def kafka(apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    running = SecuredKafka(tmp_path_factory.mktemp("secured"))
    with running.life():
        yield running


@pytest.fixture(params=["braidlog", pytest.param("kafka", marks=pytest.mark.peer)])
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        return str(request.getfixturevalue("kafka").bootstrap)
    return str(request.getfixturevalue("braidlog_broker").bootstrap_servers)


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as opened:
        yield opened


_names = iter(range(1000))


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"streamed-{next(_names)}"
    admin.create_topics([NewTopic(name, partitions=2)]).raise_for_errors()
    return name


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    started: list[Query] = []
    yield started
    for each in started:
        each.reader.stop()


def produce(servers: str, topic: str, values: range, partitions: int = 2) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for each in values:
            producer.send(topic, str(each).encode(), partition=each % partitions)


def committed(admin: Admin, group: str) -> dict[int, int]:
    return {place.partition: each.offset for place, each in admin.list_group_offsets([group])[group].items()}


def eventual_batch(query: Query) -> list[int]:
    """The next that there is: brokers tell of new partitions a moment after they were created."""
    found: list[list[int]] = []
    eventually(lambda: (batch := query.batch()) is not None and not found.append(batch))
    return found[0]


def test_from_latest_on_with_progress_and_new_partitions(
    servers: str, admin: Admin, topic: str, queries: list[Query]
) -> None:
    produce(servers, topic, range(900, 910))
    group = f"{topic}-job"
    query = Query(servers, subscribe=topic, groupId=group)
    queries.append(query)
    assert query.batch() == []
    assert query.batch() is None
    assert committed(admin, group) == {0: 5, 1: 5}
    # Nothing was read yet; what comes while nobody runs is read all the same.
    produce(servers, topic, range(4))
    query.restart()
    assert query.batch() == [0, 1, 2, 3]
    assert query.reader.reportLatestOffset() == {"@lag": {"offsets": 0, "seconds": 0.0}, topic: {"0": 7, "1": 7}}
    assert committed(admin, group) == {0: 5, 1: 5}
    assert query.batch() is None
    assert committed(admin, group) == {0: 7, 1: 7}
    admin.create_partitions({topic: 3}).raise_for_errors()
    eventually(lambda: len(admin.describe_topics([topic])[topic].partitions) == 3)
    produce(servers, topic, range(5, 6), partitions=3)
    found = eventual_batch(query)
    assert (found or eventual_batch(query)) == [5]


def test_available_now_in_limited_batches(servers: str, topic: str, queries: list[Query]) -> None:
    produce(servers, topic, range(20))
    query = Query(servers, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    queries.append(query)
    query.reader.prepareForTriggerAvailableNow()
    produce(servers, topic, range(20, 30))
    batches = []
    while (batch := query.batch()) is not None:
        batches.append(batch)
    assert [len(each) for each in batches] == [8, 8, 4]
    assert sorted(value for each in batches for value in each) == list(range(20))


def test_losses_are_told_apart(servers: str, admin: Admin, topic: str, queries: list[Query]) -> None:
    produce(servers, topic, range(20))
    query = Query(servers, subscribe=topic, startingOffsets="earliest")
    queries.append(query)
    assert query.batch() == list(range(20))
    produce(servers, topic, range(20, 30))
    admin.delete_records({TopicPartition(topic, 0): 13}).raise_for_errors()
    with pytest.raises(DataLoss, match=rf"{topic}-0: retention deleted 3 offsets \(10 to 12\)"):
        query.batch()
    query.restart(failOnDataLoss="false")
    assert query.batch() == [21, 23, 25, 26, 27, 28, 29]
    query.restart(failOnDataLoss="true")

    admin.delete_topics([topic]).raise_for_errors()
    eventually(lambda: topic not in {each.name for each in admin.list_topics()})
    with pytest.raises(DataLoss, match=f"{topic}-0 was deleted"):
        query.batch()
    admin.create_topics([NewTopic(topic, partitions=2)]).raise_for_errors()
    eventually(lambda: topic in {each.name for each in admin.list_topics()})
    # Longer than the old one: only the id tells.
    produce(servers, topic, range(100, 150))
    query.restart()
    with pytest.raises(DataLoss, match=f"{topic}-0: the topic was deleted and created again"):
        query.batch()
    query.restart(failOnDataLoss="false")
    assert query.batch() == list(range(100, 150))


def test_topics_deleted_while_the_stream_runs(servers: str, admin: Admin, topic: str, queries: list[Query]) -> None:
    produce(servers, topic, range(4))
    query = Query(servers, subscribe=topic, startingOffsets="earliest")
    queries.append(query)
    assert query.batch() == [0, 1, 2, 3]
    admin.delete_topics([topic]).raise_for_errors()
    eventually(lambda: topic not in {each.name for each in admin.list_topics()})
    with pytest.raises(DataLoss, match=f"{topic}-0 was deleted"):
        query.batch()


def test_a_group_in_use_is_refused(servers: str, topic: str, queries: list[Query]) -> None:
    group = f"{topic}-taken"
    with Consumer(bootstrap_servers=servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        query = Query(servers, subscribe=topic, groupId=group)
        queries.append(query)
        with pytest.raises(UserError, match=f"consumers are at work in group {group}"):
            query.batch()
    query.restart()
    assert query.batch() == []


def test_open_transactions_are_waited_for(servers: str, topic: str, queries: list[Query]) -> None:
    query = Query(servers, subscribe=topic, startingOffsets="earliest", kafka__isolation__level="read_committed")
    queries.append(query)
    with Producer(bootstrap_servers=servers, transactional_id=f"{topic}-writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"1", partition=0)
        producer.flush()
        assert query.batch() == []
        assert query.batch() is None
        producer.commit_transaction()
        assert eventual_batch(query) == [1]
        producer.begin_transaction()
        producer.send(topic, b"2", partition=0)
        producer.abort_transaction()
        assert eventual_batch(query) == []


@pytest.mark.parametrize("servers", [pytest.param("kafka", marks=pytest.mark.peer)], indirect=True)
def test_a_group_without_permission_is_refused(
    servers: str, kafka: SecuredKafka, admin: Admin, topic: str, queries: list[Query]
) -> None:
    admin.alter_scram_users([ScramUpsertion("reader", "not-a-secret")]).raise_for_errors()
    eventually(lambda: "reader" in admin.describe_scram_users())
    group = f"{topic}-job"
    rules = [
        Acl(AclResourceType.TOPIC, topic, "User:reader", AclOperation.READ),
        Acl(AclResourceType.GROUP, group, "User:reader", AclOperation.DESCRIBE),
        Acl(AclResourceType.GROUP, group, "User:reader", AclOperation.READ),
    ]
    query = Query(
        kafka.secured,
        subscribe=topic,
        groupId=group,
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="SCRAM-SHA-512",
        kafka__sasl__username="reader",
        kafka__sasl__password="not-a-secret",
    )
    queries.append(query)
    for allowed in (1, 2):
        admin.create_acls(rules[:allowed]).raise_for_errors()
        eventually(lambda allowed=allowed: set(rules[:allowed]) <= set(admin.describe_acls()))  # type: ignore[misc]
        # Neither may it look at the group, nor, when it may, commit.
        with pytest.raises(UserError, match=f"no permission to commit progress to group {group}"):
            query.batch()
        query.restart()
    admin.create_acls(rules).raise_for_errors()
    eventually(lambda: set(rules) <= set(admin.describe_acls()))
    assert query.batch() == []


def test_a_truncated_log_is_no_new_topic() -> None:
    with Broker() as broker:
        topic = broker.create_topic(partitions=1)
        produce(broker.bootstrap_servers, topic, range(5), partitions=1)
        log = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
        kept = log.stat().st_size
        produce(broker.bootstrap_servers, topic, range(5, 9), partitions=1)
        query = Query(broker.bootstrap_servers, subscribe=topic, startingOffsets="earliest")
        assert query.batch() == list(range(9))
        query.reader.stop()
        broker.stop()
        with log.open("r+b") as file:
            file.truncate(kept)
        broker.start()
        query.restart(**{"kafka.bootstrap.servers": broker.bootstrap_servers})
        with pytest.raises(DataLoss, match=f"{topic}-0: the log was truncated: it ends at 5"):
            query.batch()
        query.restart(failOnDataLoss="false")
        assert query.batch() == []
        produce(broker.bootstrap_servers, topic, range(50, 52), partitions=1)
        assert query.batch() == [50, 51]
        query.reader.stop()


def test_a_broker_that_restarts_is_met_again() -> None:
    """With the connections that a stream keeps from trigger to trigger."""
    with Broker() as broker:
        topic = broker.create_topic(partitions=1)
        query = Query(broker.bootstrap_servers, subscribe=topic, groupId="job")
        assert query.batch() == []
        assert query.batch() is None
        produce(broker.bootstrap_servers, topic, range(3), partitions=1)
        broker.stop()
        broker.start()
        assert query.batch() == [0, 1, 2]
        assert query.batch() is None
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert committed(admin, "job") == {0: 3}
        query.reader.stop()
