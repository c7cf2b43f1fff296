"""Committed offsets as clients and Kafka's tools see them, over crashes of the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition
from tools.peers.kafka import run_tool

from support import confluent
from support.broker import Broker
from support.eventually import eventually
from support.groups import LastingBroker
from support.offset_requests import commit_request, find_coordinator
from support.raw import ask

FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"


def reader(bootstrap: str, group: str, **settings: object) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **settings})


def committed(bootstrap: str, group: str, topic: str, partition: int) -> tuple[int, str | None]:
    consumer = reader(bootstrap, group)
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=30)
        assert found.error is None, found.error
        return found.offset, found.metadata
    finally:
        consumer.close()


def documents(text: str) -> Iterator[Any]:
    """JSON values that follow each other without a separator, as the formatter prints them."""
    decoder = json.JSONDecoder()
    position = 0
    while (position := text.find("{", position)) != -1:
        value, position = decoder.raw_decode(text, position)
        yield value


def test_commits_outlive_crashes(target_kind: str, tmp_path: Path) -> None:
    """Every acknowledged commit is there after a kill, with its metadata, whichever client asks."""
    lasting = LastingBroker(target_kind, tmp_path / "data")
    last: dict[int, int] = {}
    for life in range(3):
        with lasting.life() as broker:
            if life == 0:
                confluent.create_topic(lasting.bootstrap, "t", 3)
            for partition, offset in last.items():
                assert committed(lasting.bootstrap, "g", "t", partition) == (offset, f"at {offset}")
            consumer = reader(lasting.bootstrap, "g")
            for number in range(20):
                partition, offset = number % 3, life * 100 + number
                mark = TopicPartition("t", partition, offset, metadata=f"at {offset}")
                (answer,) = consumer.commit(offsets=[mark], asynchronous=False)
                assert answer.error is None
                last[partition] = offset
            broker.kill()
            consumer.close()
    with lasting.life():
        old = KafkaConsumer(bootstrap_servers=lasting.bootstrap, group_id="g", enable_auto_commit=False)
        for partition, offset in last.items():
            found = old.committed(KafkaPythonPartition("t", partition), metadata=True)
            # confluent-kafka sends its strings' closing zero along, and that is kept like the rest.
            assert (found.offset, found.metadata.rstrip("\0")) == (offset, f"at {offset}")
        place = KafkaPythonPartition("t", 0)
        old.assign([place])
        old.commit({place: OffsetAndMetadata(7, "from python", -1)})
        old.close()
        assert committed(lasting.bootstrap, "g", "t", 0) == (7, "from python")


def test_offsets_of_a_transaction_over_a_crash(target_kind: str, tmp_path: Path) -> None:
    """What the transaction committed is there after a kill; what it left open is not, and goes when it is fenced."""
    lasting = LastingBroker(target_kind, tmp_path / "data")

    def producer() -> Producer:
        made = Producer({"bootstrap.servers": lasting.bootstrap, "transactional.id": "loop"})
        made.init_transactions(30)
        return made

    with lasting.life() as broker:
        confluent.create_topic(lasting.bootstrap, "t", 1)
        consumer = reader(lasting.bootstrap, "g")
        member = consumer.consumer_group_metadata()
        first = producer()
        first.begin_transaction()
        first.send_offsets_to_transaction([TopicPartition("t", 0, 5)], member, 30)
        first.commit_transaction(30)
        assert committed(lasting.bootstrap, "g", "t", 0)[0] == 5
        first.begin_transaction()
        first.send_offsets_to_transaction([TopicPartition("t", 0, 6)], member, 30)
        first.abort_transaction(30)
        assert committed(lasting.bootstrap, "g", "t", 0)[0] == 5
        first.begin_transaction()
        first.send_offsets_to_transaction([TopicPartition("t", 0, 7)], member, 30)
        broker.kill()
        consumer.close()
    with lasting.life():
        second = producer()
        assert committed(lasting.bootstrap, "g", "t", 0)[0] == 5
        second.begin_transaction()
        consumer = reader(lasting.bootstrap, "g")
        second.send_offsets_to_transaction([TopicPartition("t", 0, 8)], consumer.consumer_group_metadata(), 30)
        second.commit_transaction(30)
        consumer.close()
        assert committed(lasting.bootstrap, "g", "t", 0)[0] == 8


def test_offsets_through_an_admin_client(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, 2)
    admin = confluent.admin(broker.bootstrap)
    group = f"admin-{topic}"
    find_coordinator(broker.port, group)
    marks = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 4)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, marks)])[group].result(30)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    assert {(p.partition, p.offset) for p in listed.topic_partitions} == {(0, 3), (1, 4)}
    admin.delete_topics([topic])[topic].result(30)

    def gone() -> bool:
        left = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        return not left.topic_partitions

    eventually(gone)


@pytest.mark.peer
@pytest.mark.usefixtures("apache_kafka")
def test_kafkas_own_formatter_prints_the_records(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, 1)
    group = f"printed-{topic}"
    find_coordinator(broker.port, group)
    ask(broker.port, "OffsetCommit", 8, commit_request(8, group, {(topic, 0): (42, "note")}, leader_epoch=3))
    kept = commit_request(3, group, {(topic, 0): (43, "kept")})
    kept.retention_time_ms = 60_000
    ask(broker.port, "OffsetCommit", 3, kept)
    done = run_tool(
        "kafka-console-consumer",
        ["--bootstrap-server", broker.bootstrap, "--topic", "__consumer_offsets", "--from-beginning",
         "--formatter", FORMATTER, "--timeout-ms", "8000"],
    )  # fmt: skip
    printed = [entry for entry in documents(done.stdout) if entry["key"]["data"].get("group") == group]
    assert [entry["value"]["version"] for entry in printed] == [3, 1], done.stdout + done.stderr
    first, second = (entry["value"]["data"] for entry in printed)
    assert (first["offset"], first["leaderEpoch"], first["metadata"]) == (42, 3, "note")
    assert (second["offset"], second["metadata"]) == (43, "kept")
    assert second["expireTimestamp"] - second["commitTimestamp"] == 60_000


@pytest.mark.peer
@pytest.mark.usefixtures("apache_kafka")
def test_kafka_consumer_groups_moves_and_deletes_offsets(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, 1)
    group = f"tool-{topic}"
    find_coordinator(broker.port, group)
    ask(broker.port, "OffsetCommit", 8, commit_request(8, group, {(topic, 0): 42}))
    common = ["--bootstrap-server", broker.bootstrap, "--group", group]
    moved = run_tool(
        "kafka-consumer-groups", [*common, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute"]
    )
    assert moved.returncode == 0, moved.stdout + moved.stderr
    assert committed(broker.bootstrap, group, topic, 0)[0] == 0
    deleted = run_tool("kafka-consumer-groups", [*common, "--delete-offsets", "--topic", topic])
    assert "Successful" in deleted.stdout, deleted.stdout + deleted.stderr
    assert committed(broker.bootstrap, group, topic, 0)[0] < 0
