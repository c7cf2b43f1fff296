"""confluent-kafka (librdkafka) in transactions: what readers see, who is fenced, what time ends, offsets within."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from support import confluent
from support import group_scenarios as scenarios
from support.broker import Broker
from support.eventually import eventually
from support.groups import LastingBroker
from support.samples import Sample

SECONDS = 30.0
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def transactor(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    """A producer that has taken over its transactional id."""
    own = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "linger.ms": 1,
        "retry.backoff.ms": 20,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        # Keep to the broker that goes and returns, instead of beginning again from the bootstrap list.
        "metadata.recovery.strategy": "none",
        "log_level": 2,
    }
    producer = Producer({**own, **{key.replace("_", "."): value for key, value in settings.items()}})
    producer.init_transactions(SECONDS)
    return producer


def write(producer: Producer, topic: str, values: list[str], partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value=value.encode(), partition=partition)
    assert producer.flush(SECONDS) == 0


def values(broker: Broker, topic: str, level: str = "read_committed", partition: int = 0) -> list[str]:
    # From an absolute offset: asking for the beginning costs librdkafka half a second of waiting.
    with confluent.assigned(
        broker.bootstrap, topic, 0, partition, isolation_level=level, fetch_wait_max_ms=10
    ) as consumer:
        return [(message.value() or b"").decode() for message in confluent.read(consumer)]


def test_readers_see_what_was_committed(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    producer = transactor(quick_broker.bootstrap, topic)
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
        producer.begin_transaction()
        write(producer, topic, [f"{number}a", f"{number}b"])
        ends(SECONDS)
    producer.begin_transaction()
    write(producer, topic, ["open"])
    assert values(quick_broker, topic) == ["0a", "0b", "2a", "2b", "4a", "4b"]
    everything = [f"{number}{sign}" for number in range(6) for sign in "ab"]
    assert values(quick_broker, topic, "read_uncommitted") == [*everything, "open"]
    producer.commit_transaction(SECONDS)
    assert values(quick_broker, topic)[-2:] == ["4b", "open"]


def test_an_open_transaction_holds_back_what_follows_it(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    slow, quick = transactor(quick_broker.bootstrap, f"{topic}-1"), transactor(quick_broker.bootstrap, f"{topic}-2")
    slow.begin_transaction()
    write(slow, topic, ["slow"])
    quick.begin_transaction()
    write(quick, topic, ["quick"])
    quick.commit_transaction(SECONDS)
    confluent.send(confluent.producer(quick_broker.bootstrap), topic, [Sample(None, b"plain")])
    assert values(quick_broker, topic) == []
    assert end_offsets(quick_broker, topic) == {"read_committed": 0, "read_uncommitted": 4}
    slow.abort_transaction(SECONDS)
    assert values(quick_broker, topic) == ["quick", "plain"]
    assert end_offsets(quick_broker, topic) == {"read_committed": 5, "read_uncommitted": 5}


def end_offsets(broker: Broker, topic: str) -> dict[str, int]:
    client = confluent.admin(broker.bootstrap)
    here = TopicPartition(topic, 0)
    levels = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}
    return {
        name: client.list_offsets({here: OffsetSpec.latest()}, isolation_level=level)[here].result(SECONDS).offset
        for name, level in levels.items()
    }


def test_interleaved_transactions_over_several_partitions(quick_broker: Broker, topic: str) -> None:
    """Every transaction shows whole or not at all, in each partition in the order it was written."""
    partitions, chance = 3, random.Random(5)
    confluent.create_topic(quick_broker.bootstrap, topic, partitions, segment_bytes="2000")
    producers = [transactor(quick_broker.bootstrap, f"{topic}-{number}") for number in range(3)]
    under_way: dict[int, list[tuple[int, str]]] = {}
    kept: list[tuple[int, str]] = []
    for step in range(120):
        number = chance.randrange(len(producers))
        producer = producers[number]
        if number not in under_way:
            producer.begin_transaction()
            under_way[number] = []
        elif chance.random() < 0.4:
            written = under_way.pop(number)
            if chance.random() < 0.5:
                producer.commit_transaction(SECONDS)
                kept += written
            else:
                producer.abort_transaction(SECONDS)
            continue
        partition = chance.randrange(partitions)
        write(producer, topic, [f"{step}"], partition)
        under_way[number].append((partition, f"{step}"))
    for number, written in under_way.items():
        producers[number].commit_transaction(SECONDS)
        kept += written
    for partition in range(partitions):
        own = sorted((value for place, value in kept if place == partition), key=int)
        assert values(quick_broker, topic, partition=partition) == own
    assert kept


def test_a_zombie_is_fenced_and_its_transaction_aborted(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    zombie = transactor(quick_broker.bootstrap, topic)
    zombie.begin_transaction()
    write(zombie, topic, ["zombie"])
    heir = transactor(quick_broker.bootstrap, topic)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(SECONDS)
    assert refused.value.args[0].code() in FENCED
    assert refused.value.args[0].fatal()
    heir.begin_transaction()
    write(heir, topic, ["heir"])
    heir.commit_transaction(SECONDS)
    assert values(quick_broker, topic) == ["heir"]


def test_a_zombie_cannot_write_into_its_heirs_transaction(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    zombie = transactor(quick_broker.bootstrap, topic)
    zombie.begin_transaction()
    write(zombie, topic, ["early"])
    heir = transactor(quick_broker.bootstrap, topic)
    heir.begin_transaction()
    write(heir, topic, ["heir"])
    zombie.produce(topic, value=b"late", partition=0)
    with pytest.raises(KafkaException) as refused:
        zombie.flush(SECONDS)
    assert refused.value.args[0].code() in FENCED
    heir.commit_transaction(SECONDS)
    assert values(quick_broker, topic) == ["heir"]


def test_the_coordinator_aborts_what_takes_too_long(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    producer = transactor(quick_broker.bootstrap, topic, transaction_timeout_ms=5000, message_timeout_ms=5000)
    producer.begin_transaction()
    write(producer, topic, ["late"])
    confluent.send(confluent.producer(quick_broker.bootstrap), topic, [Sample(None, b"after")])
    eventually(lambda: values(quick_broker, topic) == ["after"])
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(SECONDS)
    assert refused.value.args[0].code() in (*FENCED, KafkaError.INVALID_TXN_STATE, KafkaError._FATAL)
    again = transactor(quick_broker.bootstrap, topic)
    again.begin_transaction()
    write(again, topic, ["again"])
    again.commit_transaction(SECONDS)
    assert values(quick_broker, topic) == ["after", "again"]


def test_a_timeout_over_the_limit_is_refused(quick_broker: Broker, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        transactor(quick_broker.bootstrap, topic, transaction_timeout_ms=900_001)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


@contextmanager
def group_reader(broker: Broker, topic: str, group: str, **settings: Any) -> Iterator[Consumer]:
    """A member that has been given the topic."""
    own = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "session.timeout.ms": 6000,
        "log_level": 2,
        **settings,
    }
    consumer = Consumer(own)
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))
        yield consumer
    finally:
        consumer.close()


def committed(broker: Broker, group: str, topic: str, level: str = "read_committed") -> int | None:
    """What the group committed; None while a transaction with a newer offset is open."""
    asker = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "isolation.level": level})
    try:
        return int(asker.committed([TopicPartition(topic, 0)], timeout=2)[0].offset)
    except KafkaException as refused:
        if refused.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT):
            return None
        raise
    finally:
        asker.close()


NONE = -1001


def test_offsets_count_when_their_transaction_commits(quick_broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    confluent.create_topic(quick_broker.bootstrap, topic)
    with group_reader(quick_broker, topic, group) as consumer:
        producer = transactor(quick_broker.bootstrap, topic)
        for offset, ends, after in (
            (5, producer.abort_transaction, NONE),
            (7, producer.commit_transaction, 7),
            (9, producer.abort_transaction, 7),
        ):
            before = committed(quick_broker, group, topic)
            producer.begin_transaction()
            offsets = [TopicPartition(topic, 0, offset, "in a transaction")]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
            assert committed(quick_broker, group, topic, "read_uncommitted") == before
            ends(SECONDS)
            assert committed(quick_broker, group, topic) == after
    assert scenarios.committed(quick_broker.bootstrap, group, {(topic, 0): 7}) == {(topic, 0): (7, "in a transaction")}


def test_a_pending_offset_keeps_cautious_readers_waiting(quick_broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    confluent.create_topic(quick_broker.bootstrap, topic)
    with group_reader(quick_broker, topic, group) as consumer:
        producer = transactor(quick_broker.bootstrap, topic)
        producer.begin_transaction()
        offsets = [TopicPartition(topic, 0, 3)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        assert committed(quick_broker, group, topic) is None
        producer.commit_transaction(SECONDS)
        assert committed(quick_broker, group, topic) == 3


def test_a_member_of_an_older_generation_commits_no_offsets(quick_broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    confluent.create_topic(quick_broker.bootstrap, topic)
    with group_reader(quick_broker, topic, group) as consumer:
        stale = consumer.consumer_group_metadata()
    with group_reader(quick_broker, topic, group) as consumer:
        producer = transactor(quick_broker.bootstrap, topic)
        producer.begin_transaction()
        offsets = [TopicPartition(topic, 0, 3)]
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction(offsets, stale, SECONDS)
        error = refused.value.args[0]
        assert error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
        assert error.txn_requires_abort()
        producer.abort_transaction(SECONDS)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)
    assert committed(quick_broker, group, topic) == 3


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_transaction_outlives_the_broker(target_kind: str, tmp_path: Path, topic: str, kill: bool) -> None:
    """Begun before the broker ends, committed or aborted after it returns; nobody is fenced."""
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with lasting.life() as broker:
        confluent.create_topic(lasting.bootstrap, topic)
        committing, aborting = (transactor(lasting.bootstrap, name) for name in ("committing", "aborting"))
        for producer, value in ((committing, "kept"), (aborting, "dropped")):
            producer.begin_transaction()
            write(producer, topic, [value])
        broker.kill() if kill else broker.stop()
    with lasting.life() as broker:
        assert values(broker, topic) == []
        write(committing, topic, ["kept, too"])
        committing.commit_transaction(SECONDS)
        aborting.abort_transaction(SECONDS)
        assert values(broker, topic) == ["kept", "kept, too"]
        committing.begin_transaction()
        write(committing, topic, ["next"])
        committing.commit_transaction(SECONDS)
        assert values(broker, topic) == ["kept", "kept, too", "next"]
