"""What the clients do while `tools.capture` records them: a little of everything, in new and old versions."""

# The clients have no types, or do not export them.
# mypy: disable-error-code="import-untyped,import-not-found,attr-defined,no-untyped-call"

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.capture import Exchange, Recorder
from tools.peers.kafka import TOOL_JVM, free_port, kafka_libs, run_tool, start_kafka

JAVA_SCENARIOS = Path(__file__).parent.parent / "tests" / "interop" / "java" / "ClientScenarios.java"
RECORDS = [(b"key", b"value"), (None, b"no key"), (b"tombstone", None)]


def record_all() -> list[Exchange]:
    """Run every client against an Apache Kafka behind the recorder."""
    with tempfile.TemporaryDirectory(prefix="capture-") as scratch:
        port = free_port()
        recorder = Recorder(port)
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{recorder.port}"}
        with start_kafka(Path(scratch) / "data", port, advertised):
            bootstrap = f"127.0.0.1:{recorder.port}"
            clients: list[tuple[str, Callable[[str], None]]] = [
                ("confluent-kafka", use_confluent),
                ("kafka-python", use_kafka_python),
                ("aiokafka", lambda address: asyncio.run(use_aiokafka(address))),
                ("java tools", use_java_tools),
                ("java", lambda address: use_java(address, Path(scratch))),
            ]
            for label, use in clients:
                recorder.label = label
                use(bootstrap)
        recorder.close()
        return recorder.exchanges


def use_confluent(bootstrap: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("c-topic", num_partitions=2, replication_factor=1)])["c-topic"].result(30)
    old: list[dict[str, Any]] = [
        {"api.version.request": False, "broker.version.fallback": release} for release in ("0.8.2", "0.9.0")
    ]
    variants: list[dict[str, Any]] = [{"acks": "0"}, {"acks": "1"}, {"enable.idempotence": True}, *old]
    variants += [{"compression.type": codec} for codec in ("gzip", "snappy", "lz4", "zstd")]
    for variant in variants:
        producer = Producer({"bootstrap.servers": bootstrap, **variant})
        for key, value in RECORDS:
            producer.produce("c-topic", key=key, value=value, partition=0)
        producer.flush(30)
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "c-transaction"})
    transactional.init_transactions(30)
    for end in (transactional.commit_transaction, transactional.abort_transaction):
        transactional.begin_transaction()
        transactional.produce("c-topic", b"in a transaction")
        end(30)
    for variant in [{}, *old]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "c-group", **variant}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("c-topic", 0, OFFSET_BEGINNING)])
        consumer.consume(5, 10)
        consumer.close()
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "c-group", "auto.offset.reset": "earliest"})
    group.subscribe(["c-topic"])
    group.consume(5, 10)
    group.commit(asynchronous=False)
    group.close()
    resource = ConfigResource(ResourceType.TOPIC, "c-topic")
    admin.describe_configs([resource])[resource].result(30)
    admin.create_partitions([NewPartitions("c-topic", 3)])["c-topic"].result(30)
    here = TopicPartition("c-topic", 0, 1)
    admin.list_offsets({TopicPartition("c-topic", 0): OffsetSpec.latest()})[TopicPartition("c-topic", 0)].result(30)
    admin.delete_records([here])[here].result(30)
    admin.describe_cluster().result(30)
    admin.list_consumer_groups().result(30)
    admin.describe_consumer_groups(["c-group"])["c-group"].result(30)
    admin.delete_topics(["c-topic"])["c-topic"].result(30)


def use_kafka_python(bootstrap: str) -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic("k-topic", num_partitions=2, replication_factor=1)])
    admin.wait_for_topics(["k-topic"])
    releases = ((0, 8, 2), (0, 9), (0, 10), (0, 11), (1, 0), (2, 0), (2, 3), (2, 6), (3, 0), None)
    here = TopicPartition("k-topic", 0)
    for release in releases:
        producer = KafkaProducer(bootstrap_servers=bootstrap, api_version=release, compression_type="gzip")
        for key, value in RECORDS:
            producer.send("k-topic", value=value, key=key, partition=0)
        producer.flush(30)
        producer.close()
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, api_version=release, group_id="k-group", auto_offset_reset="earliest"
        )
        consumer.assign([here])
        consumer.poll(timeout_ms=5000)
        consumer.end_offsets([here])
        consumer.commit()
        consumer.close()
    admin.describe_topics(["k-topic"])
    admin.describe_topic_partitions(["k-topic"])
    resource = ConfigResource(ConfigResourceType.TOPIC, "k-topic", {"retention.ms": "1234567"})
    admin.alter_configs([resource])
    admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "k-topic")], include_synonyms=True)
    admin.create_partitions({"k-topic": 3})
    admin.list_partition_offsets({here: OffsetSpec.MAX_TIMESTAMP})
    admin.delete_records({here: 1})
    admin.describe_log_dirs(["k-topic"])
    admin.describe_cluster()
    admin.describe_producers([here])
    admin.list_groups()
    admin.describe_groups(["k-group"])
    admin.delete_groups(["k-group"])
    admin.delete_topics(["k-topic"])
    admin.close()


async def use_aiokafka(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("a-topic", 1, 1)])
    for settings in ({}, {"enable_idempotence": True}, {"compression_type": "zstd"}, {"acks": 0}):
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
        await producer.start()
        for key, value in RECORDS:
            await producer.send("a-topic", value, key, partition=0)
        await producer.stop()
    consumer = AIOKafkaConsumer(
        "a-topic", bootstrap_servers=bootstrap, group_id="a-group", auto_offset_reset="earliest"
    )
    await consumer.start()
    await consumer.getone()
    await consumer.commit()
    await consumer.stop()
    await admin.describe_topics(["a-topic"])
    await admin.delete_topics(["a-topic"])
    await admin.close()


def use_java_tools(bootstrap: str) -> None:
    at = ["--bootstrap-server", bootstrap]
    run_tool("kafka-topics", [*at, "--create", "--topic", "j-topic", "--partitions", "2"])
    run_tool("kafka-topics", [*at, "--describe", "--topic", "j-topic"])
    run_tool("kafka-configs", [*at, "--entity-type", "topics", "--entity-name", "j-topic", "--describe"])
    run_tool("kafka-console-producer", [*at, "--topic", "j-topic"], input_text="one\ntwo\n")
    group = ["--topic", "j-topic", "--from-beginning", "--max-messages", "2", "--group", "j-group"]
    run_tool("kafka-console-consumer", [*at, *group])
    run_tool("kafka-log-dirs", [*at, "--describe", "--topic-list", "j-topic"])
    run_tool("kafka-leader-election", [*at, "--election-type", "preferred", "--topic", "j-topic", "--partition", "0"])


def use_java(bootstrap: str, scratch: Path) -> None:
    classpath = f"{kafka_libs()}/*"
    subprocess.run(["javac", "-d", str(scratch), "-cp", classpath, str(JAVA_SCENARIOS)], check=True)
    command = ["java", *TOOL_JVM, "-cp", f"{scratch}{os.pathsep}{classpath}", "ClientScenarios", bootstrap]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
