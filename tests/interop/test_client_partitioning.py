"""Keys meet in one partition, whichever client wrote them."""

from __future__ import annotations

import random

import pytest
from kafka.partitioner.default import murmur2 as their_murmur2

from braidlog import Producer
from braidlog.wire.records.key_hash import murmur2
from support import confluent
from support.broker import Broker

PARTITIONS = 7
# None of them empty: to librdkafka that is as good as none.
KEYS = [random.Random(seed).randbytes(1 + seed % 40) for seed in range(120)] + ["kluč".encode(), b"key"]


def places(broker: Broker, topic: str) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for partition in range(PARTITIONS):
        for message in confluent.read_all(broker.bootstrap, topic, partition, fetch_wait_max_ms=10):
            found.setdefault(message.key() or b"", set()).add(partition)
    return found


@pytest.mark.parametrize(("theirs", "ours"), [("murmur2_random", None), ("consistent_random", "consistent_random")])
def test_keys_meet_with_those_of_librdkafka(broker: Broker, topic: str, theirs: str, ours: str | None) -> None:
    confluent.create_topic(broker.bootstrap, topic, PARTITIONS)
    other = confluent.producer(broker.bootstrap, partitioner=theirs)
    with Producer(bootstrap_servers=broker.bootstrap, partitioner_class=ours) as producer:
        for key in KEYS:
            other.produce(topic, key=key, value=b"theirs")
            producer.send(topic, b"ours", key=key)
    assert other.flush(30) == 0
    found = places(broker, topic)
    assert found.keys() == set(KEYS)
    assert all(len(where) == 1 for where in found.values()), "each key has one place"
    assert set().union(*found.values()) == set(range(PARTITIONS))


def test_the_hash_is_kafka_pythons() -> None:
    for key in KEYS:
        assert murmur2(key, 0, len(key)) == their_murmur2(key) & 0xFFFFFFFF


def test_records_without_a_key_reach_every_partition(broker: Broker, topic: str) -> None:
    """A batch's worth to one, then another: none is left out, and batches are not small."""
    confluent.create_topic(broker.bootstrap, topic, PARTITIONS)
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=2_000, linger_ms=20) as producer:
        deliveries = [producer.send(topic, b"x" * 100) for _ in range(5_000)]
    counts = [0] * PARTITIONS
    for delivery in deliveries:
        counts[delivery.result(0).partition] += 1
    assert min(counts) > 5_000 / PARTITIONS / 3, counts


def test_round_robin_and_ones_own(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, PARTITIONS)
    with Producer(bootstrap_servers=broker.bootstrap, partitioner_class="round_robin") as producer:
        took = [producer.send(topic, b"x", key=b"same").result(30).partition for _ in range(2 * PARTITIONS)]
    assert sorted(took[:PARTITIONS]) == list(range(PARTITIONS))
    assert took[PARTITIONS:] == took[:PARTITIONS]

    def by_value(name: str, key: bytes | None, value: bytes | None, partitions: int) -> int | None:
        return None if value is None else int(value) % partitions

    with Producer(bootstrap_servers=broker.bootstrap, partitioner_class=by_value) as producer:
        assert [producer.send(topic, str(n)).result(30).partition for n in (3, 9, 14)] == [3, 2, 0]
        assert producer.send(topic, None, key=b"left to the producer").result(30).partition in range(PARTITIONS)
