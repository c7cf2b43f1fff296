"""Apache Kafka 3.9's own command line tools for groups and transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tools.peers.kafka import run_tool

from braidlog.coordinator.partitioning import partition_for
from support import confluent
from support.broker import Broker
from support.eventually import eventually
from support.samples import Sample

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

GROUPS = "kafka-consumer-groups"
TRANSACTIONS = "kafka-transactions"
TITLES = {"GROUP", "ProducerId"}  # a table has one of these in its head
SETTLES_WITHIN_S = 90.0
PATIENT = ("--timeout", "60000")


def tool(broker: Broker, name: str, *arguments: str) -> str:
    """The tool's output; a failure shows what it said."""
    patience = PATIENT if name == GROUPS else ()
    done = run_tool(name, ["--bootstrap-server", broker.bootstrap, *patience, *arguments], timeout_s=240)
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def lines(count: int) -> list[Sample]:
    return [Sample(b"k", f"line {number}".encode()) for number in range(count)]


def rows(said: str) -> list[dict[str, str]]:
    """A table that a tool printed, by its column titles."""
    table = [line.split() for line in said.splitlines() if line.strip()]
    start = next(place for place, row in enumerate(table) if TITLES & set(row))
    return [dict(zip(table[start], row, strict=False)) for row in table[start + 1 :]]


def new_offset(said: str, topic: str) -> int:
    """Of partition 1, in the table that --reset-offsets prints after its titles without a new line."""
    found = re.search(rf"NEW-OFFSET.*\s{re.escape(topic)}\s+1\s+(\d+)", said, re.DOTALL)
    assert found is not None, said
    return int(found[1])


@contextmanager
def member(broker: Broker, topic: str, protocol: str) -> Iterator[Consumer]:
    """A member that holds the topic's two partitions."""
    if broker.is_kafka and protocol == "consumer":
        pytest.skip("librdkafka joins by a version of the consumer protocol that Apache Kafka 3.9 does not serve")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-g", "group.protocol": protocol}
    consumer = Consumer({**settings, "client.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

    def holds_both() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    eventually(holds_both, SETTLES_WITHIN_S)
    try:
        yield consumer
    finally:
        consumer.close()


def test_console_consumer_and_the_group_it_leaves(quick_broker: Broker, topic: str) -> None:
    """What the console consumer read is committed; the offsets are moved and deleted by hand."""
    group = ("--group", f"{topic}-g")
    confluent.create_topic(quick_broker.bootstrap, topic, 2)
    confluent.send(confluent.producer(quick_broker.bootstrap), topic, lines(20), partition=1)
    read = ["--topic", topic, *group, "--from-beginning", "--timeout-ms", "20000"]
    tool(quick_broker, "kafka-console-consumer", *read, "--max-messages", "12")
    assert f"{topic}-g" in tool(quick_broker, GROUPS, "--list").split()

    described = tool(quick_broker, GROUPS, "--describe", *group)
    table = {row["PARTITION"]: row for row in rows(described)}
    assert list(rows(described)[0]) == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    ]  # fmt: skip
    assert (table["1"]["CURRENT-OFFSET"], table["1"]["LOG-END-OFFSET"], table["1"]["LAG"]) == ("12", "20", "8")
    assert table["1"]["CONSUMER-ID"] == "-"
    rest = tool(quick_broker, "kafka-console-consumer", "--topic", topic, *group, "--max-messages", "8")
    assert len(rest.splitlines()) == 8

    reset = ("--reset-offsets", *group, "--topic", f"{topic}:1")
    dry = tool(quick_broker, GROUPS, *reset, "--to-earliest", "--dry-run")
    assert new_offset(dry, topic) == 0
    done = tool(quick_broker, GROUPS, *reset, "--shift-by", "-5", "--execute")
    assert new_offset(done, topic) == 15
    described = tool(quick_broker, GROUPS, "--describe", *group, "--offsets")
    assert {row["PARTITION"]: row["LAG"] for row in rows(described)}["1"] == "5"
    deleted = tool(quick_broker, GROUPS, "--delete-offsets", *group, "--topic", f"{topic}:1")
    assert "Successful" in deleted
    assert "was successful" in tool(quick_broker, GROUPS, "--delete", *group)
    assert f"{topic}-g" not in tool(quick_broker, GROUPS, "--list").split()


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_a_group_with_a_member(quick_broker: Broker, topic: str, protocol: str, assignor: str) -> None:
    group = f"{topic}-g"
    confluent.create_topic(quick_broker.bootstrap, topic, 2)
    confluent.send(confluent.producer(quick_broker.bootstrap), topic, lines(3))
    with member(quick_broker, topic, protocol) as reader:
        # The tools take longer than a session; the client's own threads keep the member alive.
        reader.poll(1.0)
        (state,) = rows(tool(quick_broker, GROUPS, "--describe", "--group", group, "--state"))
        assert state["STATE"] == "Stable"
        assert state["#MEMBERS"] == "1"
        assert assignor in state.values()
        (only,) = rows(tool(quick_broker, GROUPS, "--describe", "--group", group, "--members", "--verbose"))
        assert only["CLIENT-ID"] == "reader"
        assert only["#PARTITIONS"] == "2"
        assert any(value.endswith("(0,1)") for value in only.values())
        held = rows(tool(quick_broker, GROUPS, "--describe", "--group", group))
        assert {row["PARTITION"] for row in held} == {"0", "1"}
        assert all(row["CONSUMER-ID"] == only["CONSUMER-ID"] and row["HOST"] == "/127.0.0.1" for row in held)
        listed = rows(tool(quick_broker, GROUPS, "--list", "--state", "stable", "--type", protocol))
        assert [row["STATE"] for row in listed if row["GROUP"] == group] == ["Stable"]
        server = ["--bootstrap-server", quick_broker.bootstrap, *PATIENT]
        refused = run_tool(GROUPS, [*server, "--delete", "--group", group])
        assert "GroupNotEmptyException" in refused.stdout + refused.stderr
        moved = ["--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute"]
        refused = run_tool(GROUPS, [*server, *moved])
        assert "inactive" in refused.stdout + refused.stderr


def test_an_unknown_group(quick_broker: Broker, topic: str) -> None:
    unknown = ["--bootstrap-server", quick_broker.bootstrap, *PATIENT, "--describe", "--group", f"{topic}-none"]
    said = run_tool(GROUPS, unknown)
    assert f"Consumer group '{topic}-none' does not exist." in said.stdout + said.stderr


@contextmanager
def open_transaction(broker: Broker, topic: str) -> Iterator[Producer]:
    confluent.create_topic(broker.bootstrap, topic)
    producer = confluent.producer(broker.bootstrap, transactional_id=f"{topic}-t")
    producer.init_transactions(60)
    producer.begin_transaction()
    confluent.send(producer, topic, lines(3))
    yield producer


def test_an_open_transaction(quick_broker: Broker, topic: str) -> None:
    with open_transaction(quick_broker, topic) as producer:
        listed = {row["TransactionalId"]: row for row in rows(tool(quick_broker, TRANSACTIONS, "list"))}
        assert listed[f"{topic}-t"]["TransactionState"] == "Ongoing"
        (only,) = rows(tool(quick_broker, TRANSACTIONS, "describe", "--transactional-id", f"{topic}-t"))
        assert only["ProducerId"] == listed[f"{topic}-t"]["ProducerId"]
        assert only["TransactionState"] == "Ongoing"
        assert f"{topic}-0" in only.values()
        place = ("--topic", topic, "--partition", "0")
        (active,) = rows(tool(quick_broker, TRANSACTIONS, "describe-producers", *place))
        assert (active["ProducerId"], active["CurrentTransactionStartOffset"]) == (only["ProducerId"], "0")
        producer.commit_transaction(60)
        eventually(lambda: len(stable(quick_broker, topic)) == 3)


def test_aborting_a_transaction_by_hand(quick_broker: Broker, topic: str) -> None:
    with open_transaction(quick_broker, topic):
        hanging = tool(quick_broker, TRANSACTIONS, "find-hanging", "--topic", topic, "--partition", "0")
        assert topic not in hanging  # its coordinator knows of it and it is young: it does not hang
        tool(quick_broker, TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert stable(quick_broker, topic) == []
        described = tool(quick_broker, TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
        assert rows(described)[0]["CurrentTransactionStartOffset"] == "None"


def stable(broker: Broker, topic: str) -> list[bytes]:
    read = confluent.read_all(broker.bootstrap, topic, isolation_level="read_committed")
    return [message.value() for message in read]


def dumped(broker: Broker, internal_topic: str, name: str, decoder: str) -> list[str]:
    """The records of a group or a transactional id, as kafka-dump-log reads them from the files."""
    directory = broker.data_dir / f"{internal_topic}-{partition_for(name, 50)}"
    segment = str(directory / "00000000000000000000.log")
    done = run_tool("kafka-dump-log", ["--files", segment, decoder], timeout_s=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if re.search(rf'[="]{re.escape(name)}\W', line)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_dump_log_decodes_a_group(quick_broker: Broker, topic: str, protocol: str) -> None:
    confluent.create_topic(quick_broker.bootstrap, topic, 2)
    with member(quick_broker, topic, protocol) as reader:
        reader.commit(offsets=[TopicPartition(topic, 1, 7, "seven")], asynchronous=False)
        lines = dumped(quick_broker, "__consumer_offsets", f"{topic}-g", "--offsets-decoder")
    types = {kind for line in lines for kind in re.findall(r'key: \{"type":"(\d+)"', line)}
    # A commit, and the group: as one record, or as epoch, subscription, member, target and assignments.
    assert types == ({"1", "2"} if protocol == "classic" else {"1", "3", "4", "5", "6", "7", "8"}), "\n".join(lines)
    assert any('"offset":7' in line and '"metadata":"seven' in line for line in lines)
    assert any('"clientId":"reader"' in line and '"clientHost":"/127.0.0.1"' in line for line in lines)


def test_dump_log_decodes_a_transaction(quick_broker: Broker, topic: str) -> None:
    with open_transaction(quick_broker, topic) as producer:
        producer.commit_transaction(60)
    states: list[str] = []

    def complete() -> bool:
        lines = dumped(quick_broker, "__transaction_state", f"{topic}-t", "--transaction-log-decoder")
        states[:] = [state for line in lines for state in re.findall(r"state=(\w+)", line)]
        return states[-1:] == ["CompleteCommit"]

    eventually(complete, SETTLES_WITHIN_S)
    assert states == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
