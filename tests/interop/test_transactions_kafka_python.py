"""kafka-python in transactions, and what its admin client is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafka.admin import AbortTransactionSpec

from support import confluent, kafka_python
from support.broker import Broker
from support.eventually import eventually
from support.samples import Sample

DEADLINE_S = 30.0


@contextmanager
def transactor(broker: Broker, transactional_id: str, **settings: Any) -> Iterator[KafkaProducer]:
    with kafka_python.producer(broker.bootstrap, transactional_id=transactional_id, **settings) as producer:
        producer.init_transactions()
        yield producer


def write(producer: KafkaProducer, topic: str, *values: bytes) -> None:
    for future in [producer.send(topic, value, partition=0) for value in values]:
        future.get(DEADLINE_S)


def read(broker: Broker, topic: str, count: int, level: str = "read_committed") -> list[bytes]:
    """The first `count` records that are visible."""
    with kafka_python.assigned(broker.bootstrap, topic, isolation_level=level) as consumer:
        return [record.value for record in kafka_python.read(consumer, count)]


def test_readers_see_what_was_committed(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker, topic) as producer:
        for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
            producer.begin_transaction()
            write(producer, topic, b"%da" % number, b"%db" % number)
            ends()
    kept = [b"0a", b"0b", b"2a", b"2b", b"4a", b"4b"]
    with kafka_python.producer(quick_broker.bootstrap) as plain:
        kafka_python.send(plain, topic, [Sample(None, b"end")])
    assert read(quick_broker, topic, len(kept) + 1) == [*kept, b"end"]
    everything = [b"%d%c" % (number, sign) for number in range(6) for sign in b"ab"]
    assert read(quick_broker, topic, len(everything) + 1, "read_uncommitted") == [*everything, b"end"]


def test_a_zombie_is_fenced(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker, topic) as zombie:
        zombie.begin_transaction()
        write(zombie, topic, b"zombie")
        with transactor(quick_broker, topic) as heir:
            with pytest.raises((errors.ProducerFencedError, errors.InvalidProducerEpochError)):
                zombie.commit_transaction()
            heir.begin_transaction()
            write(heir, topic, b"heir")
            heir.commit_transaction()
    assert read(quick_broker, topic, 1) == [b"heir"]


def test_offsets_count_when_their_transaction_commits(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    here, group = TopicPartition(topic, 0), f"{topic}-group"
    consumer = KafkaConsumer(topic, bootstrap_servers=quick_broker.bootstrap, group_id=group, enable_auto_commit=False)
    # Or it joins for nothing, and may then spin in the rebalance that its metadata begins; on Apache Kafka, too.
    eventually(lambda: bool(consumer.partitions_for_topic(topic)))
    eventually(lambda: not consumer.poll(50) and bool(consumer.assignment()))
    with transactor(quick_broker, topic) as producer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({here: OffsetAndMetadata(5, "five", -1)}, consumer.group_metadata())
        assert consumer.committed(here) is None
        producer.abort_transaction()
        assert consumer.committed(here) is None
        producer.begin_transaction()
        producer.send_offsets_to_transaction({here: OffsetAndMetadata(7, "seven", -1)}, consumer.group_metadata())
        producer.commit_transaction()
        eventually(lambda: consumer.committed(here, metadata=True) == OffsetAndMetadata(7, "seven", -1))
    consumer.close(autocommit=False)


def test_the_admin_client_sees_transactions(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    here = TopicPartition(topic, 0)
    with (
        transactor(quick_broker, topic, transaction_timeout_ms=50_000) as producer,
        kafka_python.admin(quick_broker.bootstrap) as client,
    ):
        producer.begin_transaction()
        write(producer, topic, b"one", b"two")
        reported = client.describe_transactions([topic])[topic]
        assert (reported.state.value, reported.topic_partitions, reported.transaction_timeout_ms) == (
            "Ongoing",
            {here},
            50_000,
        )
        assert reported.transaction_start_time_ms > 0
        [everything] = client.list_transactions().values()
        [listed] = [each for each in everything if each.transactional_id == topic]
        assert (listed.state.value, listed.producer_id) == ("Ongoing", reported.producer_id)
        [state] = client.describe_producers([here])[here].active_producers
        assert (state.producer_id, state.producer_epoch) == (reported.producer_id, reported.producer_epoch)
        assert (state.last_sequence, state.current_transaction_start_offset) == (1, 0)
        producer.commit_transaction()
        eventually(lambda: client.describe_transactions([topic])[topic].state.value == "CompleteCommit")
        [state] = client.describe_producers([here])[here].active_producers
        assert state.current_transaction_start_offset == -1
        with pytest.raises(errors.TransactionalIdNotFoundError):
            client.describe_transactions([f"{topic}-unheard-of"])


def test_an_admin_aborts_a_hanging_transaction(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with (
        transactor(quick_broker, topic) as hanging,
        kafka_python.producer(quick_broker.bootstrap) as plain,
        kafka_python.admin(quick_broker.bootstrap) as client,
    ):
        hanging.begin_transaction()
        write(hanging, topic, b"hangs")
        kafka_python.send(plain, topic, [Sample(None, b"waits")])
        here = TopicPartition(topic, 0)
        producers = client.describe_producers([here])[here].active_producers
        [state] = [each for each in producers if each.current_transaction_start_offset == 0]
        client.abort_transaction(AbortTransactionSpec(here, state.producer_id, state.producer_epoch, -1))
        assert read(quick_broker, topic, 1) == [b"waits"]
        hanging.abort_transaction()
