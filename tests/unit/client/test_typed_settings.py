"""mypy finds the mistakes of a careless program, in a package that is found as an installed one is (PEP 561)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import braidlog
from braidlog.client.settings import ADMIN, CONSUMER, PRODUCER, definitions
from braidlog.client.typed_settings import AdminSettings, ConsumerSettings, ProducerSettings

SOURCE = Path(braidlog.__file__).parent.parent

# Each line with "# mistake" has one, and no other line has any.
PROGRAM = """
import json
from collections.abc import Sequence

import braidlog
from braidlog import (
    Admin, AsyncConsumer, ClientError, Consumer, ConsumerRecord, Delivery, NewTopic, OffsetAndMetadata,
    ParallelConsumer, Producer, RecordMetadata, SerializationError, TopicPartition,
)
from braidlog.client.admin import ConfigResource, Results


def settings() -> None:
    Producer(bootstrap_servers="localhost:9092", linger_ms=5, acks=1, compression_type="zstd", retries=None)
    Producer(bootstrap_servers=["localhost:9092"], linger=0.005)
    Producer(key_serializer="str", value_serializer=lambda value: json.dumps(value).encode())
    Producer({"bootstrap.servers": "localhost:9092", "linger.ms": "5"}, acks="all")
    Producer(lingr_ms=5)  # mistake
    Producer(linger_ms="5")  # mistake
    Producer(compression_type="rar")  # mistake
    Producer(acks=2)  # mistake
    Producer(enable_idempotence="yes")  # mistake
    Producer(group_id="shop")  # mistake
    Producer(bootstrap_servers=9092)  # mistake
    Producer(value_serializer=5)  # mistake
    Consumer(group_id="shop", enable_auto_commit=False, auto_offset_reset="earliest", security_protocol="SASL_SSL")
    Consumer(group_id="shop", value_deserializer=json.loads, session_timeout=30)
    Consumer(group_id="shop", partition_assignment_strategy=["range"])
    Consumer(enable_auto_comit=False)  # mistake
    Consumer(isolation_level="read_comitted")  # mistake
    Consumer(max_poll_records="500")  # mistake
    Consumer("orders", "returns", group_id="shop")
    Consumer(["orders"])  # mistake
    AsyncConsumer(group_id="shop", isolation_level="read_committed")
    AsyncConsumer(enable_auto_comit=False)  # mistake
    Admin(bootstrap_servers="localhost:9092", request_timeout=5)
    Admin(bootstrap_server="localhost:9092")  # mistake


def lists(admin: Admin, consumer: Consumer, names: Sequence[str]) -> None:
    admin.create_topics(["orders", NewTopic("payments", partitions=6, config={"retention.ms": "1000"})])
    admin.create_topics(NewTopic(name, partitions=3) for name in names)
    admin.create_topics("orders")  # mistake
    admin.create_topics([NewTopic("orders", partitions="6")])  # mistake
    admin.delete_topics(names)
    admin.delete_topics("orders")  # mistake
    admin.describe_groups({"shop": 1}.keys())
    admin.describe_groups("shop")  # mistake
    admin.alter_configs({ConfigResource.topic("orders"): {"retention.ms": "1000"}})
    admin.alter_configs({"orders": {"retention.ms": "1000"}})  # mistake
    consumer.subscribe("orders")
    consumer.subscribe(["orders"])
    consumer.assign([TopicPartition("orders", 0), ("orders", 1)])
    consumer.assign("orders")  # mistake
    consumer.assign(TopicPartition("orders", 0))  # mistake
    consumer.assign(["orders"])  # mistake
    consumer.seek(TopicPartition("orders", 0), 5)
    consumer.seek("orders", 5)  # mistake
    consumer.commit({TopicPartition("orders", 0): 5, TopicPartition("orders", 1): OffsetAndMetadata(7)})
    consumer.commit([TopicPartition("orders", 0)])  # mistake


def records(producer: Producer, consumer: Consumer) -> None:
    delivery: Delivery = producer.send("orders", "3 apples", key="ann", headers={"trace": b"1"})
    metadata: RecordMetadata = delivery.result(timeout=5)
    offset: int = metadata.offset
    producer.send("orders", b"3 apples", on_delivery=lambda metadata, error: print(metadata, error))
    producer.send(b"orders", "3 apples")  # mistake
    producer.send("orders", "3 apples", partition="0")  # mistake
    producer.send("orders", "3 apples", timestamp=5)  # mistake
    producer.send("orders", "3 apples", "ann", 0)  # mistake
    producer.send("orders", "3 apples", headers=["trace"])  # mistake
    producer.flush(timeout="5")  # mistake
    records: list[ConsumerRecord] = consumer.poll(1.0)
    for record in consumer:
        name: str = record.topic
        number: str = record.offset  # mistake
        print(name, record.timestamp_ms, record.topic_partition.partition, record.valu)  # mistake
    ParallelConsumer(consumer, print, workers=4, ordering="partition")
    ParallelConsumer(consumer, print, ordering="topic")  # mistake


def exports() -> None:
    try:
        print(braidlog.__version__, braidlog.Producer)
    except (ClientError, SerializationError):
        pass
    print(braidlog.Produzer)  # mistake
    results: Results[str, None] = Admin().delete_groups(["shop"])
    reveal_type(results)  # revealed
    reveal_type(Producer)  # revealed
    reveal_type(NewTopic)  # revealed
"""


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """What mypy says of the program, by line."""
    place = tmp_path_factory.mktemp("careless")
    (place / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "program.py"]
    # Not MYPYPATH: the package is found on the path of the interpreter, where it needs its marker py.typed.
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    environment.pop("MYPYPATH", None)
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=240)
    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        match = re.match(r"program\.py:(\d+): (?:error|note): (.*)", line)
        assert match is not None, done.stdout + done.stderr
        found.setdefault(int(match[1]), []).append(match[2])
    assert found, done.stdout + done.stderr
    return found


def test_mypy_finds_each_planted_mistake_and_nothing_else(findings: dict[int, list[str]]) -> None:
    lines = PROGRAM.splitlines()
    planted = {number for number, line in enumerate(lines, 1) if "# mistake" in line}
    revealed = {number for number, line in enumerate(lines, 1) if "# revealed" in line}
    missed = [lines[number - 1].strip() for number in sorted(planted - set(findings))]
    assert not missed, "mypy is silent about these"
    wrong = {lines[number - 1].strip(): findings[number] for number in sorted(set(findings) - planted - revealed)}
    assert not wrong, "mypy complains about these"
    assert len(planted) > 30


def test_names_that_are_exported_lazily_have_their_types(findings: dict[int, list[str]]) -> None:
    said = [text for texts in findings.values() for text in texts if text.startswith("Revealed type")]
    assert len(said) == 3
    for name, text in zip(("admin.results.Results[", "producer.Producer", "admin.topics.NewTopic"), said, strict=True):
        assert name in text


@pytest.mark.parametrize(
    ("kind", "typed"), [(PRODUCER, ProducerSettings), (CONSUMER, ConsumerSettings), (ADMIN, AdminSettings)]
)
def test_every_setting_has_a_type(kind: str, typed: type) -> None:
    for key in definitions(kind):
        keyword = key.replace(".", "_")
        assert keyword in typed.__annotations__
        if key.endswith(".ms"):
            assert keyword.removesuffix("_ms") in typed.__annotations__
