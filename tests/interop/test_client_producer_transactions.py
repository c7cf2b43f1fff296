"""Our producer in transactions: what everybody's readers see, who is fenced, what time ends, offsets within.

Against braidlog it goes by transaction.version 2, against Apache Kafka 3.9 by the older one.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog import Consumer, Producer
from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import (
    AbortableError,
    ClientError,
    FencedProducerError,
    ProducerFailedError,
    RecordTooLargeError,
    RequestTimeout,
    SerializationError,
    TransactionStateError,
)
from braidlog.core.types import TopicPartition
from support import confluent, kafka_python
from support import group_scenarios as scenarios
from support.broker import Broker
from support.eventually import eventually
from support.groups import LastingBroker
from support.samples import Sample

SECONDS = 30.0
QUICK = {"retry_backoff_ms": 20, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "max_block": SECONDS}


@contextmanager
def transactor(bootstrap: str, transactional_id: str, **settings: Any) -> Iterator[Producer]:
    """A producer that has taken over its transactional id."""
    own = {"bootstrap_servers": bootstrap, "transactional_id": transactional_id, **QUICK}
    with Producer(**{**own, **settings}) as producer:
        producer.init_transactions()
        yield producer


def write(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for delivery in [producer.send(topic, value, partition=partition) for value in values]:
        delivery.result(SECONDS)


def values(broker: Broker, topic: str, level: str = "read_committed", partition: int = 0) -> list[str]:
    with confluent.assigned(
        broker.bootstrap, topic, 0, partition, isolation_level=level, fetch_wait_max_ms=10
    ) as consumer:
        return [(message.value() or b"").decode() for message in confluent.read(consumer)]


# What readers see


def confluent_reads(broker: Broker, topic: str, count: int, level: str) -> list[bytes | None]:
    with confluent.assigned(broker.bootstrap, topic, 0, isolation_level=level) as consumer:
        return [message.value() for message in confluent.read(consumer, count)]


def kafka_python_reads(broker: Broker, topic: str, count: int, level: str) -> list[bytes | None]:
    with kafka_python.assigned(broker.bootstrap, topic, isolation_level=level) as consumer:
        return [record.value for record in kafka_python.read(consumer, count)]


def aiokafka_reads(broker: Broker, topic: str, count: int, level: str) -> list[bytes | None]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Theirs

    async def read() -> list[bytes | None]:
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level=level)
        await consumer.start()
        try:
            consumer.assign([Theirs(topic, 0)])
            consumer.seek(Theirs(topic, 0), 0)
            async with asyncio.timeout(SECONDS):
                return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def our_reads(broker: Broker, topic: str, count: int, level: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level=level) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        while len(found) < count:
            records = consumer.poll(SECONDS)
            assert records, f"only {len(found)} of {count} records came"
            found += [record.value for record in records]
    return found


READERS = [confluent_reads, kafka_python_reads, aiokafka_reads, our_reads]


def test_every_reader_sees_exactly_what_was_committed(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic) as producer:
        for number, end in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
            producer.begin_transaction()
            write(producer, topic, f"{number}a", f"{number}b")
            end()
        with producer.transaction():
            producer.send(topic, "end", partition=0)
    kept = [b"0a", b"0b", b"2a", b"2b", b"4a", b"4b", b"end"]
    everything = [b"%d%c" % (number, sign) for number in range(6) for sign in b"ab"] + [b"end"]
    for reads in READERS:
        assert reads(quick_broker, topic, len(kept), "read_committed") == kept, reads
        assert reads(quick_broker, topic, len(everything), "read_uncommitted") == everything, reads


def test_the_transaction_version_is_the_clusters(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic) as producer:
        epochs = []
        for _ in range(3):
            with producer.transaction():
                write(producer, topic, "x")
            assert producer._transactions is not None
            epochs.append(producer._transactions.manager._known.epoch)
    assert epochs == ([0, 0, 0] if quick_broker.is_kafka else [1, 2, 3])


def test_an_open_transaction_holds_back_what_follows_it(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with (
        transactor(quick_broker.bootstrap, f"{topic}-1") as slow,
        transactor(quick_broker.bootstrap, f"{topic}-2") as quick,
    ):
        slow.begin_transaction()
        write(slow, topic, "slow")
        with quick.transaction():
            write(quick, topic, "quick")
        assert values(quick_broker, topic) == []
        slow.abort_transaction()
        assert values(quick_broker, topic) == ["quick"]


def test_interleaved_transactions_over_several_partitions(quick_broker: Broker, topic: str) -> None:
    """Every transaction shows whole or not at all, in each partition in the order it was written."""
    partitions, chance = 3, random.Random(11)
    confluent.create_topic(quick_broker.bootstrap, topic, partitions, segment_bytes="2000")
    under_way: dict[int, list[tuple[int, str]]] = {}
    kept: list[tuple[int, str]] = []
    with (
        transactor(quick_broker.bootstrap, f"{topic}-0") as first,
        transactor(quick_broker.bootstrap, f"{topic}-1", compression_type="lz4") as second,
        transactor(quick_broker.bootstrap, f"{topic}-2", linger_ms=5) as third,
    ):
        producers = [first, second, third]
        for step in range(150):
            number = chance.randrange(len(producers))
            producer = producers[number]
            if number not in under_way:
                producer.begin_transaction()
                under_way[number] = []
            elif chance.random() < 0.4:
                written = under_way.pop(number)
                if chance.random() < 0.5:
                    producer.commit_transaction()
                    kept += written
                else:
                    producer.abort_transaction()
                continue
            partition = chance.randrange(partitions)
            producer.send(topic, f"{step}", partition=partition).result(SECONDS)
            under_way[number].append((partition, f"{step}"))
        for number, written in under_way.items():
            producers[number].commit_transaction()
            kept += written
    for partition in range(partitions):
        own = sorted((value for place, value in kept if place == partition), key=int)
        assert values(quick_broker, topic, partition=partition) == own
    assert kept


def test_many_records_in_flight_at_the_commit(quick_broker: Broker, topic: str) -> None:
    """Nobody waited for any of them: the commit does."""
    confluent.create_topic(quick_broker.bootstrap, topic, 4)
    with transactor(quick_broker.bootstrap, topic, linger_ms=1000) as producer:
        for round_number in range(4):
            producer.begin_transaction()
            deliveries = [producer.send(topic, f"{round_number}:{n}", key=str(n)) for n in range(5000)]
            if round_number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                assert all(delivery.done() and delivery.exception() is None for delivery in deliveries)
    found = [value for partition in range(4) for value in values(quick_broker, topic, partition=partition)]
    assert sorted(found) == sorted(f"{number}:{n}" for number in (0, 2) for n in range(5000))


# Ends other than a commit


def test_an_abort_drops_what_was_not_sent(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        producer.begin_transaction()
        dropped = producer.send(topic, "dropped", partition=0)
        producer.abort_transaction()
        with pytest.raises(AbortableError, match="its transaction was aborted"):
            dropped.result(0)
        with producer.transaction():
            kept = producer.send(topic, "kept", partition=0)
        assert kept.result(0).offset >= 0
    assert values(quick_broker, topic) == ["kept"]
    assert "dropped" not in values(quick_broker, topic, "read_uncommitted")


def test_a_record_that_failed_forbids_the_commit(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic, max_message_bytes="1000")
    with transactor(quick_broker.bootstrap, topic) as producer:
        producer.begin_transaction()
        write(producer, topic, "before")
        too_large = producer.send(topic, "x" * 5000, partition=0)
        assert too_large.exception(SECONDS) is not None
        with pytest.raises(AbortableError, match=rf"records for {topic}-0 were not written.*abort_transaction\(\)"):
            producer.send(topic, "after", partition=0)
        with pytest.raises(AbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        for number in range(3):
            with producer.transaction():
                write(producer, topic, f"next {number}")
    assert values(quick_broker, topic) == ["next 0", "next 1", "next 2"]


@pytest.mark.parametrize(
    "send",
    [
        lambda producer, topic: producer.send(topic, bytes(20_000)),
        lambda producer, topic: producer._append_batch(topic, 0, bytes(20_000), 1, 0, 0),
    ],
    ids=["record", "batch"],
)
def test_a_record_that_was_never_queued_forbids_the_commit_too(
    quick_broker: Broker, topic: str, send: Callable[[Producer, str], object]
) -> None:
    with transactor(quick_broker.bootstrap, topic, max_request_size=10_000) as producer:
        producer.begin_transaction()
        write(producer, topic, "with it")
        with pytest.raises(RecordTooLargeError):
            send(producer, topic)
        with pytest.raises(AbortableError, match=r"cannot be committed: a record of it was refused .*abort"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            with pytest.raises(SerializationError):
                producer.send(topic, object())
            write(producer, topic, "alone")
    assert values(quick_broker, topic) == ["alone"]


def test_what_is_raised_within_aborts(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic) as producer:
        for value in ("kept", "broken", "kept, too"):
            try:
                with producer.transaction():
                    write(producer, topic, value)
                    if value == "broken":
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
    assert values(quick_broker, topic) == ["kept", "kept, too"]


def test_closing_aborts_what_is_open(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic) as producer:
        producer.begin_transaction()
        write(producer, topic, "open")
    confluent.send(confluent.producer(quick_broker.bootstrap), topic, [Sample(None, b"plain")])
    assert values(quick_broker, topic) == ["plain"], "nothing is held back"


# Who is fenced


def test_a_zombie_is_fenced_and_its_transaction_aborted(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic) as zombie:
        zombie.begin_transaction()
        write(zombie, topic, "zombie")
        with transactor(quick_broker.bootstrap, topic) as heir:
            with pytest.raises(FencedProducerError, match="has taken over"):
                zombie.commit_transaction()
            for call in (zombie.begin_transaction, zombie.abort_transaction, lambda: zombie.send(topic, "late")):
                with pytest.raises(FencedProducerError):
                    call()
            with heir.transaction():
                write(heir, topic, "heir")
    assert values(quick_broker, topic) == ["heir"]


def test_a_zombie_cannot_write_into_its_heirs_transaction(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic) as zombie:
        zombie.begin_transaction()
        write(zombie, topic, "early")
        with transactor(quick_broker.bootstrap, topic) as heir:
            heir.begin_transaction()
            write(heir, topic, "heir")
            assert zombie.send(topic, "late", partition=0).exception(SECONDS) is not None
            with pytest.raises((AbortableError, FencedProducerError)):
                zombie.commit_transaction()
            with pytest.raises(FencedProducerError):
                zombie.abort_transaction()
            heir.commit_transaction()
    assert values(quick_broker, topic) == ["heir"]


def test_librdkafka_takes_over_from_us_and_we_from_it(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    theirs = confluent.producer(quick_broker.bootstrap, transactional_id=topic)
    with transactor(quick_broker.bootstrap, topic) as ours:
        ours.begin_transaction()
        write(ours, topic, "ours")
        theirs.init_transactions(SECONDS)
        theirs.begin_transaction()
        theirs.produce(topic, value=b"theirs", partition=0)
        theirs.commit_transaction(SECONDS)
        with pytest.raises(FencedProducerError):
            ours.commit_transaction()
    theirs.begin_transaction()
    theirs.produce(topic, value=b"lost", partition=0)
    theirs.flush(SECONDS)
    with transactor(quick_broker.bootstrap, topic) as ours, ours.transaction():
        write(ours, topic, "ours again")
    assert values(quick_broker, topic) == ["theirs", "ours again"]


def test_the_coordinator_aborts_what_takes_too_long(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with transactor(quick_broker.bootstrap, topic, transaction_timeout_ms=5000) as producer:
        producer.begin_transaction()
        write(producer, topic, "late")
        confluent.send(confluent.producer(quick_broker.bootstrap), topic, [Sample(None, b"after")])
        eventually(lambda: values(quick_broker, topic) == ["after"])
        with pytest.raises(ProducerFailedError, match=r"transaction\.timeout\.ms|knows of no such transaction"):
            producer.commit_transaction()
    with transactor(quick_broker.bootstrap, topic) as again, again.transaction():
        write(again, topic, "again")
    assert values(quick_broker, topic) == ["after", "again"]


def test_a_timeout_over_the_limit_is_refused(quick_broker: Broker, topic: str) -> None:
    with (
        Producer(
            bootstrap_servers=quick_broker.bootstrap, transactional_id=topic, transaction_timeout_ms=900_001
        ) as producer,
        pytest.raises(ProducerFailedError, match=r"transaction\.timeout\.ms is larger than the broker allows"),
    ):
        producer.init_transactions()


def test_misuse_is_told_what_to_do(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)
    with Producer(bootstrap_servers=quick_broker.bootstrap, transactional_id=topic) as producer:
        misuses: list[tuple[Callable[[], object], str]] = [
            (lambda: producer.send(topic, "x"), r"init_transactions\(\) first"),
            (producer.begin_transaction, r"init_transactions\(\) first"),
            (producer.commit_transaction, r"init_transactions\(\) first"),
        ]
        for call, advice in misuses:
            with pytest.raises(TransactionStateError, match=advice):
                call()
        producer.init_transactions()
        misuses = [
            (lambda: producer.send(topic, "x"), r"begin_transaction\(\) first"),
            (producer.commit_transaction, r"begin_transaction\(\) first"),
            (producer.init_transactions, "once is enough"),
        ]
        for call, advice in misuses:
            with pytest.raises(TransactionStateError, match=advice):
                call()


# Offsets


def test_offsets_count_when_their_transaction_commits(quick_broker: Broker, topic: str) -> None:
    group, here = f"{topic}-group", TopicPartition(topic, 0)
    confluent.create_topic(quick_broker.bootstrap, topic)
    places = {(topic, 0): 0}
    with transactor(quick_broker.bootstrap, topic) as producer:
        for offset, end, after in (
            (7, producer.commit_transaction, (7, "seven")),
            (9, producer.abort_transaction, (7, "seven")),
        ):
            producer.begin_transaction()
            producer.send_offsets_to_transaction({here: OffsetAndMetadata(offset, "seven")}, group)
            end()
            assert scenarios.committed(quick_broker.bootstrap, group, places) == {(topic, 0): after}


def test_consume_transform_produce(quick_broker: Broker, topic: str) -> None:
    """Every record once, though some transactions are aborted and the group changes hands in between."""
    sink, group = f"{topic}-sink", f"{topic}-group"
    for name in (topic, sink):
        confluent.create_topic(quick_broker.bootstrap, name, 2)
    count = 300
    with Producer(bootstrap_servers=quick_broker.bootstrap) as writer:
        for number in range(count):
            writer.send(topic, str(number), partition=number % 2)
    done = 0
    for life in range(3):
        with (
            transactor(quick_broker.bootstrap, f"{topic}-copier") as producer,
            group_reader(quick_broker, topic, group) as consumer,
        ):
            goal = count if life == 2 else done + 80
            while done < goal:
                done += copy_some(consumer, producer, sink, abort=random.random() < 0.3)
    found = [value for partition in range(2) for value in values(quick_broker, sink, partition=partition)]
    assert sorted(found, key=int) == [str(number) for number in range(count)]


def group_reader(broker: Broker, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=6000,
        max_poll_records=25,
    )
    consumer.subscribe([topic])
    return consumer


def copy_some(consumer: Consumer, producer: Producer, sink: str, *, abort: bool) -> int:
    """How many records were copied for good."""
    records = consumer.poll(SECONDS)
    producer.begin_transaction()
    ends: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in records:
        producer.send(sink, record.value, partition=record.partition)
        ends[TopicPartition(record.topic, record.partition)] = OffsetAndMetadata(record.offset + 1)
    producer.send_offsets_to_transaction(ends, consumer.group_metadata())
    if not abort:
        producer.commit_transaction()
        return len(records)
    producer.abort_transaction()
    for here, place in consumer.committed(list(ends)).items():
        consumer.seek(here, place.offset if place is not None else 0)
    return 0


def test_a_member_of_an_older_generation_commits_no_offsets(quick_broker: Broker, topic: str) -> None:
    group, here = f"{topic}-group", TopicPartition(topic, 0)
    confluent.create_topic(quick_broker.bootstrap, topic)
    with group_reader(quick_broker, topic, group) as consumer:
        eventually(lambda: bool(consumer.poll(0.05) or consumer.assignment()))
        stale = consumer.group_metadata()
        assert stale.generation_id > 0
    with transactor(quick_broker.bootstrap, topic) as producer:
        for whose in (stale, ConsumerGroupMetadata(group, 99, "nobody")):
            producer.begin_transaction()
            with pytest.raises(AbortableError, match="the group has") as refused:
                producer.send_offsets_to_transaction({here: OffsetAndMetadata(3)}, whose)
            assert "abort_transaction()" in str(refused.value)
            with pytest.raises(AbortableError):
                producer.commit_transaction()
            producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({here: OffsetAndMetadata(5)}, group)
    assert scenarios.committed(quick_broker.bootstrap, group, {(topic, 0): 0}) == {(topic, 0): (5, "")}


# The asyncio face


def test_in_an_event_loop(quick_broker: Broker, topic: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic)

    async def program() -> None:
        async with Producer(bootstrap_servers=quick_broker.bootstrap, transactional_id=topic, **QUICK) as producer:
            with pytest.raises(TransactionStateError, match="init_transactions_async"):
                producer.init_transactions()
            await producer.init_transactions_async()
            for end in (producer.commit_transaction_async, producer.abort_transaction_async):
                producer.begin_transaction()
                await producer.send(topic, end.__name__, partition=0)
                await producer.send_offsets_to_transaction_async(
                    {TopicPartition(topic, 0): OffsetAndMetadata(1)}, f"{topic}-group"
                )
                await end()
            async with producer.transaction():
                await producer.send(topic, "in a scope", partition=0)

    asyncio.run(program())
    assert values(quick_broker, topic) == ["commit_transaction_async", "in a scope"]


# The broker goes away


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_transaction_outlives_the_broker(target_kind: str, tmp_path: Path, topic: str, kill: bool) -> None:
    """Begun before the broker ends, committed or aborted after it returns; nobody is fenced."""
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with lasting.life() as broker:
        confluent.create_topic(lasting.bootstrap, topic)
        committing = Producer(bootstrap_servers=lasting.bootstrap, transactional_id="committing", **QUICK)
        aborting = Producer(bootstrap_servers=lasting.bootstrap, transactional_id="aborting", **QUICK)
        for producer, value in ((committing, "kept"), (aborting, "dropped")):
            producer.init_transactions()
            producer.begin_transaction()
            write(producer, topic, value)
        broker.kill() if kill else broker.stop()
    while_down = committing.send(topic, "kept, too", partition=0)
    with committing, aborting, lasting.life() as broker:
        while_down.result(SECONDS)
        committing.commit_transaction()
        aborting.abort_transaction()
        assert values(broker, topic) == ["kept", "kept, too"]
        for producer, value in ((committing, "next"), (aborting, "and another")):
            with producer.transaction():
                write(producer, topic, value)
        assert values(broker, topic) == ["kept", "kept, too", "next", "and another"]


def test_a_commit_that_timed_out_is_called_again(target_kind: str, tmp_path: Path, topic: str) -> None:
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with lasting.life() as broker, transactor(lasting.bootstrap, topic) as producer:
        confluent.create_topic(lasting.bootstrap, topic)
        for value in ("first", "second"):
            producer.begin_transaction()
            write(producer, topic, value)
            broker.process.signal(signal.SIGSTOP)
            try:
                with pytest.raises(RequestTimeout, match="call it again"):
                    producer.commit_transaction(0.3)
                with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) did not end in time"):
                    producer.begin_transaction()
            finally:
                broker.process.signal(signal.SIGCONT)
            producer.commit_transaction()
        assert values(broker, topic) == ["first", "second"]


def test_initialising_waits_for_the_broker(target_kind: str, tmp_path: Path, topic: str) -> None:
    lasting = LastingBroker(target_kind, tmp_path / "data")
    with Producer(bootstrap_servers=lasting.bootstrap, transactional_id=topic, **QUICK) as producer:
        with pytest.raises(RequestTimeout, match="no broker answers"):
            producer.init_transactions(0.2)
        with lasting.life() as broker:
            confluent.create_topic(lasting.bootstrap, topic)
            producer.init_transactions()
            with producer.transaction():
                write(producer, topic, "late, but in time")
            assert values(broker, topic) == ["late, but in time"]


def test_errors_are_of_two_families() -> None:
    """Abort and go on, or close: a program can tell by the class alone."""
    assert not issubclass(AbortableError, ProducerFailedError)
    assert issubclass(FencedProducerError, ProducerFailedError)
    assert issubclass(AbortableError, ClientError)
    assert issubclass(ProducerFailedError, ClientError)
