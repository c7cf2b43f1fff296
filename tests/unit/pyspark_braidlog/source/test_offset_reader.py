"""What the driver learns of a real broker, and how it tells that it learns nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from braidlog import Admin, Producer, TopicPartition
from braidlog.client.errors import AuthenticationFailed, NoConnection, RequestTimeout, SettingError
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidTopicError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
)
from braidlog.testing import Broker
from pyspark_braidlog.source.offset_reader import ClusterUnavailable, MissingTopics, OffsetReader, user_error
from pyspark_braidlog.source.topics import Assign, Subscribe, SubscribePattern, TopicFacts


@pytest.fixture
def view(braidlog_broker: Broker) -> Iterator[OffsetReader]:
    with OffsetReader({"bootstrap.servers": braidlog_broker.bootstrap_servers}) as opened:
        yield opened


class TestTopics:
    def test_by_name_with_id_and_partitions(self, braidlog_broker: Broker, view: OffsetReader) -> None:
        topic = braidlog_broker.create_topic(partitions=3)
        (listed,) = [each for each in braidlog_broker.admin().list_topics() if each.name == topic]
        assert view.topics(Subscribe((topic,))) == {topic: TopicFacts(str(listed.topic_id), (0, 1, 2))}

    def test_by_pattern_without_those_of_the_cluster(self, braidlog_broker: Broker, view: OffsetReader) -> None:
        one = braidlog_broker.create_topic(braidlog_broker.unique_topic("view-a"))
        other = braidlog_broker.create_topic(braidlog_broker.unique_topic("view-b"))
        with Producer(bootstrap_servers=braidlog_broker.bootstrap_servers, transactional_id="any") as producer:
            producer.init_transactions()
        assert any(each.is_internal for each in braidlog_broker.admin().list_topics())
        found = view.topics(SubscribePattern(".*"))
        assert {one, other} <= found.keys()
        assert not [name for name in found if name.startswith("__")]
        assert view.topics(SubscribePattern("^view-a")).keys() == {one}
        assert view.topics(SubscribePattern("matches none")) == {}

    def test_partitions_by_name(self, braidlog_broker: Broker, view: OffsetReader) -> None:
        topic = braidlog_broker.create_topic(partitions=4)
        wanted = Assign((TopicPartition(topic, 3), TopicPartition(topic, 1)))
        assert view.topics(wanted)[topic].partitions == (1, 3)

    def test_what_is_missing_is_named(self, braidlog_broker: Broker, view: OffsetReader) -> None:
        topic = braidlog_broker.create_topic()
        with pytest.raises(MissingTopics, match=r"topics gone-1, gone-2 do not exist") as raised:
            view.topics(Subscribe(("gone-2", topic, "gone-1")))
        assert raised.value.topics == ("gone-1", "gone-2")
        with pytest.raises(MissingTopics, match=f"topic {topic} has no partition 7; it has 1, counted from 0"):
            view.topics(Assign((TopicPartition(topic, 7),)))

    def test_what_is_missing_may_be_passed_over(self, braidlog_broker: Broker, view: OffsetReader) -> None:
        topic = braidlog_broker.create_topic()
        assert view.topics(Subscribe(("gone", topic)), missing_ok=True).keys() == {topic}
        wanted = Assign((TopicPartition(topic, 0), TopicPartition(topic, 7), TopicPartition("gone", 0)))
        assert view.topics(wanted, missing_ok=True)[topic].partitions == (0,)


class TestOffsets:
    def test_first_last_and_by_time(self, braidlog_broker: Broker, view: OffsetReader) -> None:
        topic = braidlog_broker.create_topic(partitions=2, retention_ms=-1)
        full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        with Producer(bootstrap_servers=braidlog_broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send(topic, b"x", partition=0, timestamp_ms=1000 + number * 10)
        braidlog_broker.admin().delete_records({full: 2}).raise_for_errors()
        assert view.earliest([full, empty]) == {full: 2, empty: 0}
        assert view.latest([full, empty]) == {full: 5, empty: 0}
        assert view.at_time({full: 1031, empty: 0}) == {full: 4, empty: None}
        assert view.at_time({full: 1041}) == {full: None}
        assert view.latest([]) == {}

    def test_read_committed_ends_before_an_open_transaction(self, braidlog_broker: Broker) -> None:
        topic = braidlog_broker.create_topic()
        place = TopicPartition(topic, 0)
        servers = braidlog_broker.bootstrap_servers
        with Producer(bootstrap_servers=servers, transactional_id="view") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"undecided").result()
            with OffsetReader({"bootstrap.servers": servers, "isolation.level": " Read_Committed "}) as committed:
                assert committed.latest([place]) == {place: 0}
                assert committed.log_ends([place]) == {place: 1}
            with OffsetReader({"bootstrap.servers": servers}) as everything:
                assert everything.latest([place]) == {place: 1}
            producer.abort_transaction()

    def test_what_a_group_committed(self, braidlog_broker: Broker, view: OffsetReader) -> None:
        topic = braidlog_broker.create_topic(partitions=3)
        places = [TopicPartition(topic, each) for each in range(3)]
        with Admin(bootstrap_servers=braidlog_broker.bootstrap_servers) as admin:
            admin.alter_group_offsets(f"g-{topic}", {places[0]: 5, places[2]: 0}).raise_for_errors()
        assert view.committed(f"g-{topic}", places[1:]) == {places[2]: 0}
        assert view.committed(f"g-{topic}", places) == {places[0]: 5, places[2]: 0}
        assert view.committed("nobody", places) == {}

    def test_of_what_is_missing(self, view: OffsetReader) -> None:
        with pytest.raises(MissingTopics, match="topic never-made does not exist"):
            view.latest([TopicPartition("never-made", 0)])


class TestFailures:
    def test_nobody_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with (
            OffsetReader({"bootstrap.servers": f"127.0.0.1:{port}", "default.api.timeout.ms": "300"}) as view,
            pytest.raises(UserError, match=rf"no answer from kafka.bootstrap.servers=127.0.0.1:{port}") as raised,
        ):
            view.topics(Subscribe(("t",)))
        assert "\n" not in str(raised.value)
        assert raised.value.__suppress_context__

    def test_nobody_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            servers = f"127.0.0.1:{silent.getsockname()[1]}"
            begun = time.monotonic()
            with (
                OffsetReader({"bootstrap.servers": servers, "default.api.timeout.ms": "500"}) as view,
                pytest.raises(UserError, match="no answer from"),
            ):
                view.topics(Subscribe(("t",)))
            # A call has 60 s by default.
            assert time.monotonic() - begun < 25

    @pytest.mark.parametrize(
        ("problem", "begins"),
        [
            (AuthenticationFailed("wrong password"), "the brokers at kafka:9092 do not let this query in: wrong"),
            (RequestTimeout("too slow"), "no answer from kafka.bootstrap.servers=kafka:9092: too slow"),
            (TopicAuthorizationFailedError("topic secret"), "no permission to read: topic secret"),
            (SettingError("port=x: no number"), "port=x: no number"),
            (CorruptMessageError("damaged"), "CORRUPT_MESSAGE: damaged"),
        ],
    )
    def test_each_is_one_sentence_of_the_users(self, problem: Exception, begins: str) -> None:
        sentence = user_error(problem, "kafka:9092")
        assert isinstance(sentence, UserError)
        assert str(sentence).startswith(begins)

    def test_what_may_pass_is_told_from_what_will_not(self) -> None:
        for problem in (RequestTimeout("too slow"), NoConnection("gone"), LeaderNotAvailableError("t-0")):
            assert isinstance(user_error(problem, "kafka:9092"), ClusterUnavailable)
        for lasting in (AuthenticationFailed("wrong password"), SettingError("port=x"), InvalidTopicError("t!")):
            assert not isinstance(user_error(lasting, "kafka:9092"), ClusterUnavailable)

    def test_waits_ten_seconds_unless_told_otherwise(self) -> None:
        with OffsetReader({"bootstrap.servers": "127.0.0.1:1"}) as view:
            assert view.patience_s == 10.0
        with OffsetReader({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "2500"}) as view:
            assert view.patience_s == 2.5
