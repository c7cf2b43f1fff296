from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException
from tools.peers.kafka import run_tool

from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.broker import Broker, StartBroker
from support.confluent import DEADLINE_S, create_topic
from support.eventually import eventually
from support.group_setup import fill, open_transaction
from support.raw import ask
from support.samples import BASE_TIMESTAMP_MS

STRANGER = 4711


def committed(cli: Any, topic: str) -> list[str]:
    """What a reader sees that waits for transactions to end."""
    lines: list[str] = (
        cli(*("consume", topic, "--offset", "earliest", "--exit-at-end", "--isolation", "read_committed"))
        .succeeded()
        .lines
    )
    return lines


def test_an_open_transaction_and_its_abort(cli: Any, broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    fill(broker.bootstrap, topic, {0: 2})
    name = f"{topic}-id"
    sender = open_transaction(broker.bootstrap, name, topic, transaction_timeout_ms=600_000)

    words = ("transactions", "list", "--output", "json")
    (listed,) = (row for row in cli(*words, "--state", "ongoing").succeeded().json if row["transactional_id"] == name)
    producer_id = listed["producer_id"]
    assert cli(*words, "--producer-id", str(producer_id)).succeeded().json == [listed]
    assert cli(*words, "--state", "CompleteCommit,Dead", "--producer-id", str(producer_id)).succeeded().json == []
    assert cli(*words, "--longer-than", "3600", "--producer-id", str(producer_id)).succeeded().json == []

    (described,) = cli("transactions", "describe", name, "--output", "json").succeeded().json
    assert described["state"] == "Ongoing"
    assert (described["producer_id"], described["timeout_ms"]) == (producer_id, 600_000)
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert described["coordinator"] == listed["coordinator"]
    assert 0 <= described["duration_ms"] < 600_000
    header, row = cli("transactions", "describe", name).succeeded().lines
    assert header.split()[:4] == ["TRANSACTIONAL-ID", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE"]
    assert row.split()[-1] == f"{topic}:0"

    place = ("--topic", topic, "--partition", "0")
    (active,) = (
        each
        for each in cli("transactions", "producers", *place, "--output", "json").succeeded().json
        if each["transaction_start_offset"] is not None
    )
    assert (active["producer_id"], active["transaction_start_offset"]) == (producer_id, 2)
    assert "TRANSACTION-START-OFFSET" in cli("transactions", "producers", "--topic", topic).succeeded().lines[0]
    assert cli("transactions", "find-hanging", *place, "--idle", "0.001", "--output", "json").succeeded().json == []

    abort = ("transactions", "abort")
    cli(*abort, *place, "--start-offset", "2", "--yes").failed("does not hang: the coordinator of")
    cli(*abort, *place, "--start-offset", "1", "--yes").failed("starts at offset 1; open ones start at 2")
    cli(*abort, "--transactional-id", name).failed("add --yes to do it")
    assert "fence its producer" in cli(*abort, "--transactional-id", name).err

    done = cli(*abort, "--transactional-id", name, "--yes", "--output", "json").succeeded().json
    assert (done["aborted"], done["producer_id"]) == (True, producer_id)
    with pytest.raises(KafkaException, match=r"FENCED|fenced|epoch"):
        sender.commit_transaction(DEADLINE_S)
    eventually(lambda: cli("transactions", "describe", name, "--output", "json").json[0]["state"] != "PrepareAbort")
    (ended,) = cli("transactions", "describe", name, "--output", "json").succeeded().json
    assert ended["state"] in ("CompleteAbort", "Empty")
    assert (ended["partitions"], ended["duration_ms"]) == ([], None)
    assert ended["producer_epoch"] > described["producer_epoch"]
    assert committed(cli, topic) == ["0", "1"]
    assert "has no open transaction" in cli(*abort, "--transactional-id", name).succeeded().out


def test_a_hanging_transaction(start_broker: StartBroker, cli_of: Callable[[Broker | None], Any], topic: str) -> None:
    # Without the check a partition takes what no coordinator knows of: that is how transactions came to hang.
    broker = start_broker({"transaction.partition.verification.enable": "false"})
    cli = cli_of(broker)
    create_topic(broker.bootstrap, topic, 2)
    fill(broker.bootstrap, topic, {1: 1})
    _write_unknown(broker, topic, partition=1)
    fill(broker.bootstrap, topic, {1: 3})
    assert committed(cli, topic) == ["0"]

    assert len(cli("transactions", "find-hanging", "--idle", "999999999").succeeded().lines) == 1
    (hanging,) = cli("transactions", "find-hanging", "--output", "json").succeeded().json
    assert (hanging["topic"], hanging["partition"], hanging["start_offset"]) == (topic, 1, 1)
    assert (hanging["producer_id"], hanging["producer_epoch"]) == (STRANGER, 3)
    assert "ends such a transaction" in cli("transactions", "find-hanging", "--topic", topic).succeeded().err

    place = ("--topic", topic, "--partition", "1", "--start-offset", "1")
    cli("transactions", "abort", *place).failed(f"write an abort marker for producer {STRANGER} (epoch 3)")
    done = cli("transactions", "abort", *place, "--yes").succeeded()
    assert done.out == f"transaction at offset 1 of {topic}-1 aborted\n"
    assert cli("transactions", "find-hanging", "--output", "json").succeeded().json == []
    assert committed(cli, topic) == ["0", "0", "1", "2"]
    cli("transactions", "abort", *place, "--yes").failed("no open transaction of")


def _write_unknown(broker: Broker, topic: str, partition: int) -> None:
    """A transactional batch of a producer that no coordinator gave an id to."""
    record = Record(offset=0, timestamp=BASE_TIMESTAMP_MS, key=None, value=b"lost")
    batch = build_batch([record], producer_id=STRANGER, producer_epoch=3, base_sequence=0, transactional=True)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=30_000, topic_data=[data])
    answer: Any = ask(broker.port, "Produce", 9, request)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize(
    ("words", "reported", "code"),
    [
        (("list", "--state", "asleep"), "'asleep' is no state of a transaction; choose from", 2),
        (("list", "--producer-id", "9223372036854775808"), "up to ", 2),
        (("list", "--longer-than", "-1"), "positive number of seconds", 2),
        (("describe",), "TRANSACTIONAL-ID", 2),
        (("describe", ""), "has at least one character", 2),
        (("describe", "no-such-id"), "it does not exist; `braidlog transactions list` shows what does", 1),
        (("producers", "--topic", "no-such-topic"), "[UNKNOWN_TOPIC_OR_PARTITION]", 1),
        (("producers", "--topic", "x", "--partition", "2147483648"), "up to ", 2),
        (("abort",), "say which transaction", 1),
        (("abort", "--topic", "x", "--partition", "0"), "say which transaction", 1),
        (("abort", "--topic", "x", "--transactional-id", "y"), "but not both", 1),
        (("abort", "--transactional-id", "no-such-id", "--yes"), "[TRANSACTIONAL_ID_NOT_FOUND]", 1),
        (("abort", "--topic", "no-such-topic", "--partition", "0", "--start-offset", "0"), "[UNKNOWN_TOPIC", 1),
        (("abort", "--topic", "x", "--partition", "0", "--start-offset", "99999999999999999999"), "up to ", 2),
    ],
)
def test_what_cannot_be_asked(cli: Any, words: tuple[str, ...], reported: str, code: int) -> None:
    cli("transactions", *words).failed(reported, code)


def test_some_of_several(cli: Any, broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    name = f"{topic}-id"
    open_transaction(broker.bootstrap, name, topic).commit_transaction(DEADLINE_S)
    described = cli("transactions", "describe", name, "no-such-id", "--output", "json").failed("no-such-id")
    assert [row["transactional_id"] for row in described.json] == [name]
    assert committed(cli, topic) == ["uncertain"]


@pytest.mark.peer
def test_kafkas_own_tool_tells_the_same(cli: Any, broker: Broker, topic: str, apache_kafka: object) -> None:
    create_topic(broker.bootstrap, topic)
    name = f"{topic}-id"
    sender = open_transaction(broker.bootstrap, name, topic)
    (row,) = cli("transactions", "describe", name, "--output", "json").succeeded().json
    tool = ("--bootstrap-server", broker.bootstrap)
    theirs = run_tool("kafka-transactions", (*tool, "describe", "--transactional-id", name))
    columns, values = (line.split() for line in theirs.stdout.splitlines())
    reported = dict(zip(columns, values, strict=True))
    assert reported["ProducerId"] == str(row["producer_id"])
    assert reported["ProducerEpoch"] == str(row["producer_epoch"])
    assert reported["TransactionState"] == row["state"]
    assert reported["TransactionTimeoutMs"] == str(row["timeout_ms"])
    assert reported["CurrentTransactionStartTimeMs"] == str(row["start_time_ms"])
    assert reported["TopicPartitions"] == f"{topic}-0"

    ours = cli("transactions", "list").succeeded().lines
    theirs = run_tool("kafka-transactions", (*tool, "list"))
    assert sorted(line.split() for line in ours[1:]) == sorted(line.split() for line in theirs.stdout.splitlines()[1:])
    (ours_at,) = cli("transactions", "producers", "--topic", topic, "--output", "json").succeeded().json
    theirs = run_tool("kafka-transactions", (*tool, "describe-producers", "--topic", topic, "--partition", "0"))
    columns, values = (line.split() for line in theirs.stdout.splitlines())
    reported = dict(zip(columns, values, strict=True))
    assert reported["CurrentTransactionStartOffset"] == str(ours_at["transaction_start_offset"]) == "0"
    assert reported["LastTimestamp"] == str(ours_at["last_timestamp_ms"])
    sender.abort_transaction(DEADLINE_S)
